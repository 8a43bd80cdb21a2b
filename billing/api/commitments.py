"""Endpoints of commitments. Commitments that a token or person may not see are not listed.

Terms are proposed with `prices:write`, or by a person who may edit prices, and approved by another person who may approve
or with a token `prices:approve`, as prices are.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import TEAM, Endpoint, facts_of, rows_seen
from billing.api.schema import PROBLEM
from billing.rates.models import Commitment, CommitmentDraft
from billing.rates.services import CommitmentTerms, RateError
from billing.rating.services import commitment_terms as services
from billing.tenancy.actors import actor_of
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from metering.intervals import declared_instant
from metering.messages import Message
from pricing.fields import shown

STEPS: Mapping[str, tuple[Callable[..., CommitmentDraft], str]] = {
    "approve": (services.terms_approve, "prices:approve"),
    "reject": (services.terms_reject, "prices:approve"),
    "withdraw": (services.terms_withdraw, "prices:write"),
}
STEP = OpenApiParameter("step", str, OpenApiParameter.PATH, enum=list(STEPS))
REFUSED = OpenApiResponse(PROBLEM, "not like this; nothing has changed")


Terms = TypeVar("Terms", Commitment, CommitmentDraft)


class TermsSerializer(serializers.ModelSerializer[Terms]):
    """Fields that a commitment and a draft of one have in common."""

    team = serializers.CharField(source="team.code")
    gpu_hours_per_month = serializers.DecimalField(source="gpu_hours", max_digits=20, decimal_places=6)
    price_per_gpu_hour = serializers.DecimalField(source="price", max_digits=18, decimal_places=4)


class CommitmentSerializer(TermsSerializer[Commitment]):
    """GPU-hours of an accelerator a month, paid at their own price, used or not, in [valid_from, valid_until)."""

    class Meta:
        model = Commitment
        fields = (
            "name", "team", "accelerator", "gpu_hours_per_month", "price_per_gpu_hour", "valid_from", "valid_until",
        )  # fmt: skip


class CommitmentDraftSerializer(TermsSerializer[CommitmentDraft]):
    """Proposed terms with their proposer and decider. `ends`: they let a stored commitment end at `valid_until`."""

    name = serializers.CharField()
    ends = serializers.BooleanField()
    team = serializers.CharField(source="team_code")
    accelerator = serializers.CharField()
    valid_from = serializers.DateTimeField()
    valid_until = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(["proposed", "approved", "rejected", "withdrawn"], source="word")
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    decided_by = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decision = serializers.CharField()

    class Meta:
        model = CommitmentDraft
        fields = (
            "id", "ends", *CommitmentSerializer.Meta.fields, "state", "reason", "requested_by", "requested_at", "decided_by",
            "decided_at", "decision",
        )  # fmt: skip


class DeclaredInstant(serializers.DateTimeField):
    """Instant with an offset, or a date: local midnight of the billing zone, as in the set-up file."""

    def to_internal_value(self, value: Any) -> datetime:
        try:
            return declared_instant(str(value), billing_setup().zone)
        except ValueError as error:
            expected = Message("must be a date, or an RFC 3339 instant with an offset, from 2000 to 2199")
            raise serializers.ValidationError(Message("%(value)s %(range)s", value=shown(value), range=expected)) from error


class ProposalSerializer(serializers.Serializer[Any]):
    """New terms; or with `ends` true the earlier end, `valid_until`, of the stored commitment `name`."""

    name = serializers.CharField(max_length=200)
    ends = serializers.BooleanField(default=False)
    team = serializers.CharField(max_length=64, required=False)
    accelerator = serializers.CharField(max_length=512, required=False)
    gpu_hours_per_month = serializers.DecimalField(max_digits=20, decimal_places=6, required=False)
    price_per_gpu_hour = serializers.DecimalField(max_digits=18, decimal_places=4, required=False)
    valid_from = DeclaredInstant(required=False)
    valid_until = DeclaredInstant(required=False, allow_null=True, default=None)
    reason = serializers.CharField(max_length=2000)

    def validate(self, terms: dict[str, Any]) -> dict[str, Any]:
        needed = ("valid_until",) if terms["ends"] else (
            "team", "accelerator", "gpu_hours_per_month", "price_per_gpu_hour", "valid_from"
        )  # fmt: skip
        if missing := [name for name in needed if terms.get(name) is None]:
            raise serializers.ValidationError({name: ["is missing"] for name in missing})
        return terms


class CommitmentStepSerializer(serializers.Serializer[Any]):
    """Reason of a step; a rejection needs one."""

    reason = serializers.CharField(max_length=2000, required=False, default="", allow_blank=True)


class Commitments(Endpoint, ListAPIView[Commitment]):
    """Commitments, by team, accelerator and start."""

    parameters = [TEAM]
    permission_classes = [has_scope("invoices:read")]
    serializer_class = CommitmentSerializer

    def get_queryset(self) -> QuerySet[Commitment]:
        found = Commitment.objects.select_related("team").order_by("team__code", "accelerator", "valid_from")
        return rows_seen(found, self.request, team="team__code")


class ReadsOrProposes(BasePermission):
    """Permission: `invoices:read` to read, `prices:write` to propose."""

    message = "this needs the scope invoices:read to read, prices:write to propose"

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method in SAFE_METHODS:
            return has_scope("invoices:read")().has_permission(request, view)
        return actor_of(request).has("prices:write")


class TakesStep(BasePermission):
    """Permission: `prices:write` to withdraw, `prices:approve` to decide."""

    message = "this needs the scope prices:write to withdraw, prices:approve to decide"

    def has_permission(self, request: Request, view: Any) -> bool:
        step = STEPS.get(view.kwargs.get("step", ""))
        actor = actor_of(request)
        return actor.has(step[1]) if step else actor.has("prices:write") or actor.has("prices:approve")


@extend_schema_view(get=extend_schema(operation_id="list_commitment_drafts"))
class CommitmentDrafts(Endpoint, ListAPIView[CommitmentDraft]):
    """Proposed terms, the newest first."""

    parameters = [TEAM]
    permission_classes = [ReadsOrProposes]
    serializer_class = CommitmentDraftSerializer

    def get_queryset(self) -> QuerySet[CommitmentDraft]:
        found = CommitmentDraft.objects.prefetch_related("steps").order_by("-id")
        return rows_seen(found, self.request, team="payload__team")

    @extend_schema(
        operation_id="propose_commitment",
        request=ProposalSerializer,
        responses={201: CommitmentDraftSerializer, 409: REFUSED},
    )
    def post(self, request: Request) -> Response:
        """Propose terms, or the end of a commitment; nothing changes before another person approves."""
        facts, actor, now = facts_of(ProposalSerializer, request), actor_of(request), timezone.now()
        if facts["ends"]:
            draft = services.terms_propose_end(
                name=facts["name"], at=facts["valid_until"], reason=facts["reason"], actor=actor, now=now
            )
        else:
            draft = services.terms_propose(terms=_terms(facts), reason=facts["reason"], actor=actor, now=now)
        return Response(CommitmentDraftSerializer(draft).data, status=201)


class CommitmentDraftStep(Endpoint):
    """Decision on proposed terms."""

    permission_classes = [TakesStep]

    @extend_schema(
        operation_id="decide_commitment",
        parameters=[STEP],
        request=CommitmentStepSerializer,
        responses={200: CommitmentDraftSerializer, 409: REFUSED},
    )
    def post(self, request: Request, pk: int, step: str) -> Response:
        """Approve or reject terms that another person proposed, or withdraw own ones."""
        if step not in STEPS:
            raise Http404
        reason = facts_of(CommitmentStepSerializer, request)["reason"]
        draft = STEPS[step][0](draft_id=pk, actor=actor_of(request), now=timezone.now(), reason=reason)
        return Response(CommitmentDraftSerializer(draft).data)


def _terms(facts: Mapping[str, Any]) -> CommitmentTerms:
    team = Team.objects.filter(code=facts["team"], is_group=False).first()
    if team is None:
        raise RateError(Message("team %(code)s: there is no such team", code=repr(facts["team"][:80])))
    return CommitmentTerms(
        facts["name"], team, facts["accelerator"], facts["gpu_hours_per_month"], facts["price_per_gpu_hour"],
        facts["valid_from"], facts["valid_until"],
    )  # fmt: skip
