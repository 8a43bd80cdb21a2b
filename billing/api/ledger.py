"""Endpoint of the general ledger, which confirms that it took the journal of a month."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import Endpoint, facts_of, sees_all_teams
from billing.api.schema import PROBLEM
from billing.exports.services.journal import MAX_REFERENCE, journal_acknowledge
from billing.invoices.selectors import journal_as_dict
from billing.tenancy.actors import actor_of


class Acknowledgement(serializers.Serializer[Any]):
    """Confirmation by the ledger: the batch as every row of the file names it, and the ledger's own reference."""

    batch_hash = serializers.CharField(max_length=64)
    reference = serializers.CharField(max_length=MAX_REFERENCE)


class JournalAcknowledgement(Endpoint):
    """Acknowledgement of one month's journal."""

    permission_classes = [has_scope("journal:acknowledge")]

    @extend_schema(
        operation_id="acknowledge_journal", request=Acknowledgement,
        responses={200: OpenApiTypes.OBJECT, 409: OpenApiResponse(PROBLEM, "no such batch, or another reference")},
    )  # fmt: skip
    def post(self, request: Request, month: str) -> Response:
        """Record that the ledger took the batch; sent again with the same reference it changes nothing."""
        sees_all_teams(request, "a journal holds every team")
        facts = facts_of(Acknowledgement, request)
        export = journal_acknowledge(
            month=month, batch=facts["batch_hash"], reference=facts["reference"], actor=actor_of(request), now=timezone.now()
        )
        return Response({"period": month, **journal_as_dict(export)})
