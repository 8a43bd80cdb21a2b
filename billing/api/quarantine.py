"""Quarantine over the API: records that could not enter the ledger, and decisions on them."""

from typing import Any

import msgspec
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import Endpoint, asked, facts_of, sees_all_teams
from billing.api.schema import PROBLEM
from billing.tenancy.actors import actor_of
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_dismiss, quarantine_replay

MAX_REASON = 2000
ALL_TEAMS = "quarantine holds records of every team"


class Entry(serializers.ModelSerializer[QuarantinedRecord]):
    """Quarantined record as the API shows it."""

    class Meta:
        model = QuarantinedRecord
        fields = (
            "id", "door", "reporter", "reason", "error", "key", "record", "at", "received_at", "times_received",
            "status", "resolved_by", "resolution", "resolved_at", "corrected",
        )  # fmt: skip


class Decision(serializers.Serializer[Any]):
    """Decision on a record."""

    action = serializers.ChoiceField(["replay", "dismiss"])
    reason = serializers.CharField(max_length=MAX_REASON)
    record = serializers.DictField(required=False, help_text="replay: the corrected record, else it is taken as it came")


@extend_schema_view(get=extend_schema(operation_id="list_quarantine"))
class Quarantine(Endpoint, ListAPIView[QuarantinedRecord]):
    """Records that could not enter the ledger, the newest first; open ones block the close of their month."""

    parameters = [
        OpenApiParameter("status", str, enum=QuarantinedRecord.Status.values),
        OpenApiParameter("reason", str, enum=QuarantinedRecord.Reason.values),
    ]
    permission_classes = [has_scope("usage:read")]
    serializer_class = Entry

    def get_queryset(self) -> QuerySet[QuarantinedRecord]:
        sees_all_teams(self.request, ALL_TEAMS)
        chosen = {name: value for name in ("status", "reason") if (value := asked(self.request, name))}
        return QuarantinedRecord.objects.filter(**chosen).order_by("-id")


class QuarantineEntry(Endpoint):
    """One quarantined record, to replay or dismiss."""

    permission_classes = [has_scope("usage:correct")]

    @extend_schema(
        operation_id="decide_quarantine",
        request=Decision,
        responses={
            200: Entry, 404: OpenApiResponse(PROBLEM),
            409: OpenApiResponse(PROBLEM, "refused again, or resolved already; nothing has changed"),
        },
    )
    def post(self, request: Request, pk: int) -> Response:
        """Take the record into the ledger, corrected or as it came, or dismiss it as no usage."""
        sees_all_teams(request, ALL_TEAMS)
        return Response(Entry(_decided(pk, facts_of(Decision, request), actor_of(request))).data)


def _written(record: dict[str, Any]) -> str:
    """Return the record as JSON with its numbers as they came.  Raises ValidationError."""
    try:
        return msgspec.json.Encoder(decimal_format="number").encode(record).decode()
    except UnicodeEncodeError as error:
        raise serializers.ValidationError({"record": ["contains half a character"]}) from error


def _decided(pk: int, decision: dict[str, Any], actor: str) -> QuarantinedRecord:
    try:
        if decision["action"] == "dismiss":
            return quarantine_dismiss(record_id=pk, actor=actor, resolution=decision["reason"])
        record = decision.get("record")
        corrected = None if record is None else _written(record)
        return quarantine_replay(
            record_id=pk, actor=actor, reason=decision["reason"], now=timezone.now(), corrected=corrected
        )
    except QuarantinedRecord.DoesNotExist as error:
        raise Http404 from error
