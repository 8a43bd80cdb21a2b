"""Endpoints of issued corrections and disputes. Documents that a token or person may not see are not found."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.invoices import IssuedDocument
from billing.api.parameters import MONTH, TEAM, Endpoint, asked, facts_of, rows_seen
from billing.api.schema import PROBLEM
from billing.corrections.disputed import dispute_as_dict, disputes_of
from billing.corrections.models import Dispute
from billing.corrections.note_lines import NoteError
from billing.corrections.services.disputes import Claim, dispute_open
from billing.invoices.models import Note
from billing.invoices.selectors import note_as_dict, notes_issued
from billing.tenancy.actors import actor_of

STATUS = OpenApiParameter("status", str, description="where the dispute is", enum=Dispute.Status.values)
KIND = OpenApiParameter("kind", str, description="credit or rebill", enum=Note.Kind.values)


class NoteSerializer(serializers.Serializer[Note]):
    """Credit note, or a rebill of the credited lines."""

    number = serializers.CharField()
    kind = serializers.ChoiceField(Note.Kind.choices)
    period = serializers.CharField()
    team = serializers.CharField()
    currency = serializers.CharField()
    total = serializers.CharField()
    sha256 = serializers.CharField()
    lines = serializers.ListField(child=serializers.DictField())

    def to_representation(self, instance: Note) -> dict[str, Any]:
        return note_as_dict(instance)


class CreditNotes(Endpoint, ListAPIView[Note]):
    """Issued credit notes and rebills; `month` is the one in which they were issued."""

    parameters = [MONTH, TEAM, KIND]
    permission_classes = [has_scope("invoices:read")]
    serializer_class = NoteSerializer

    def get_queryset(self) -> QuerySet[Note]:
        notes = rows_seen(
            notes_issued().order_by("number"), self.request, team="team__code", month="correction__period__month"
        )
        if kind := asked(self.request, "kind"):
            notes = notes.filter(kind=kind)
        return notes


@extend_schema_view(get=extend_schema(responses={200: NoteSerializer, (200, "application/pdf"): OpenApiTypes.BINARY}))
class CreditNote(IssuedDocument):
    """One credit note or rebill as JSON, PDF, CSV or XLSX."""

    serializer_class = NoteSerializer

    def issued(self) -> QuerySet[Note]:
        return notes_issued()


class DisputeSerializer(serializers.Serializer[Dispute]):
    """Dispute with its deadlines, steps and outcome."""

    id = serializers.IntegerField()
    status = serializers.ChoiceField(Dispute.Status.choices)
    team = serializers.CharField()
    document = serializers.CharField()
    lines = serializers.ListField(child=serializers.IntegerField())
    amount = serializers.CharField()
    reason_code = serializers.ChoiceField(Dispute.Reason.choices)
    triage_due = serializers.DateTimeField()
    decision_due = serializers.DateTimeField()
    steps = serializers.ListField(child=serializers.DictField())

    def to_representation(self, instance: Dispute) -> dict[str, Any]:
        return dispute_as_dict(instance, timezone.now())


class ClaimSerializer(serializers.Serializer[Any]):
    """Claim of a team: lines of one of its documents, disputed amount (left out: all of it), reason and evidence."""

    document = serializers.CharField(max_length=100)
    lines = serializers.ListField(child=serializers.IntegerField(min_value=1), min_length=1, max_length=1000)
    reason_code = serializers.ChoiceField(Dispute.Reason.choices)
    statement = serializers.CharField(max_length=4000)
    evidence = serializers.CharField(max_length=4000, required=False, default="")
    amount = serializers.DecimalField(max_digits=20, decimal_places=2, required=False, default=None)


@extend_schema_view(
    post=extend_schema(
        operation_id="open_dispute", request=ClaimSerializer,
        responses={
            201: DisputeSerializer, 404: OpenApiResponse(PROBLEM, "the team has no such document"),
            409: OpenApiResponse(PROBLEM, "cannot be disputed, or not like this; nothing has changed"),
        },
    ),
)  # fmt: skip
class Disputes(Endpoint, ListAPIView[Dispute]):
    """Disputes about lines of issued documents, the newest first."""

    parameters = [TEAM, STATUS]
    permission_classes = [has_scope("invoices:read", write="disputes:write")]
    serializer_class = DisputeSerializer

    def post(self, request: Request) -> Response:
        """Open a dispute for the team that the token is bound to."""
        facts = facts_of(ClaimSerializer, request)
        claim = Claim(
            facts["document"], facts["lines"], facts["reason_code"], facts["statement"], facts["evidence"], facts["amount"]
        )
        return Response(dispute_as_dict(_opened(request, claim), timezone.now()), status=201)

    def get_queryset(self) -> QuerySet[Dispute]:
        disputes = disputes_of(actor_of(self.request).teams())
        if team := asked(self.request, "team"):
            disputes = disputes.filter(team__code=team)
        if status := asked(self.request, "status"):
            disputes = disputes.filter(status=status)
        return disputes


def _opened(request: Request, claim: Claim) -> Dispute:
    token = actor_of(request).token
    team = token.team if token else None
    if team is None:
        raise PermissionDenied("a dispute is opened for a team: this needs a token that is bound to one")
    try:
        return dispute_open(claim=claim, actor=actor_of(request), now=timezone.now(), acting_for=team)
    except NoteError as error:
        raise Http404 from error


class OneDispute(Endpoint):
    """One dispute."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: DisputeSerializer})
    def get(self, request: Request, pk: int) -> Response:
        dispute = get_object_or_404(disputes_of(actor_of(request).teams()), pk=pk)
        return Response(dispute_as_dict(dispute, timezone.now()))
