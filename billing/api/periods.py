"""Endpoints of a period's meter readings and of the teams that its close could not bill."""

from decimal import Decimal
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import TEAM, Endpoint, facts_of, rows_seen, sees_all_teams
from billing.api.schema import PROBLEM
from billing.closing.models import BlockedTeam, MeterReading
from billing.closing.services.energy import meter_reading_put
from billing.invoices.models import BillingPeriod
from billing.tenancy.actors import actor_of

ALL_TEAMS = "a meter counts every team of a cluster"


class ReadingSerializer(serializers.ModelSerializer[MeterReading]):
    """Meter reading as it was reported; the last one of a cluster counts."""

    class Meta:
        model = MeterReading
        fields = ("id", "cluster", "metered_kwh", "shared_kwh", "source", "told_by", "told_at")


class KwhField(serializers.CharField):
    """Text, or a JSON number whose digits stay as they were written."""

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(str(data) if isinstance(data, Decimal) else data)


class ReportedReading(serializers.Serializer[Any]):
    """Reading of a meter for the month, in kWh with at most 3 decimals, and how much of it is shared by plan."""

    cluster = serializers.CharField(max_length=512)
    metered_kwh = KwhField(max_length=40)
    shared_kwh = KwhField(max_length=40, required=False, default="0")
    source = serializers.CharField(  # type: ignore[assignment]  # a field of the body; DRF keeps it apart from `Field.source`
        max_length=500, help_text="which meter, which export"
    )  # fmt: skip


@extend_schema_view(get=extend_schema(operation_id="list_meter_readings"))
class MeterReadings(Endpoint, ListAPIView[MeterReading]):
    """Meter readings of the building for a month, in the order of their reports."""

    permission_classes = [has_scope("usage:read", write="usage:correct")]
    serializer_class = ReadingSerializer

    def get_queryset(self) -> QuerySet[MeterReading]:
        sees_all_teams(self.request, ALL_TEAMS)
        return MeterReading.objects.filter(period=_period(self.kwargs["month"])).order_by("id")

    @extend_schema(
        operation_id="tell_meter_reading", request=ReportedReading,
        responses={201: ReadingSerializer, 400: OpenApiResponse(PROBLEM, "no such month, or a reading that cannot be")},
    )  # fmt: skip
    def post(self, request: Request, month: str) -> Response:
        """Report a reading; none is ever changed, the last one of a cluster counts in the period report."""
        sees_all_teams(request, ALL_TEAMS)
        facts = facts_of(ReportedReading, request)
        try:
            reading = meter_reading_put(
                month=month, cluster=facts["cluster"], metered=facts["metered_kwh"], shared=facts["shared_kwh"],
                source=facts["source"], actor=actor_of(request), now=timezone.now(),
            )  # fmt: skip
        except ValueError as error:  # ReadingError, or an invalid month
            raise ParseError(str(error)) from error
        return Response(ReadingSerializer(reading).data, status=201)


class BlockedTeamSerializer(serializers.ModelSerializer[BlockedTeam]):
    """Team that the close could not bill: why, and its expected amount, null if unknown."""

    class Meta:
        model = BlockedTeam
        fields = ("team", "problem", "amount", "held_at")


@extend_schema_view(get=extend_schema(operation_id="list_held_teams"))
class BlockedTeams(Endpoint, ListAPIView[BlockedTeam]):
    """Teams that a month in the middle of its close could not bill while the others are billed."""

    parameters = [TEAM]
    permission_classes = [has_scope("invoices:read")]
    serializer_class = BlockedTeamSerializer

    def get_queryset(self) -> QuerySet[BlockedTeam]:
        held = BlockedTeam.objects.filter(period=_period(self.kwargs["month"])).order_by("team")
        return rows_seen(held, self.request, team="team")


def _period(month: str) -> BillingPeriod:
    return get_object_or_404(BillingPeriod, month=month)
