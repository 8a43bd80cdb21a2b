"""The door to what teams have committed to. What a token or person may not see is not listed."""

from typing import ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.permissions import BasePermission

from billing.api.authentication import has_scope, teams_of
from billing.api.reading import TEAM, asked
from billing.rates.models import Commitment


class CommitmentShape(serializers.ModelSerializer[Commitment]):
    """GPU-hours of an accelerator a month, paid at their own price, used or not, in [valid_from, valid_until)."""

    team = serializers.CharField(source="team.code")
    gpu_hours_per_month = serializers.DecimalField(source="gpu_hours", max_digits=20, decimal_places=6)
    price_per_gpu_hour = serializers.DecimalField(source="price", max_digits=18, decimal_places=4)

    class Meta:
        model = Commitment
        fields = (
            "name", "team", "accelerator", "gpu_hours_per_month", "price_per_gpu_hour", "valid_from", "valid_until",
        )  # fmt: skip


@extend_schema_view(get=extend_schema(parameters=[TEAM]))
class Commitments(ListAPIView[Commitment]):
    """Every commitment, by team, accelerator and start."""

    permission_classes: ClassVar[list[type[BasePermission]]] = [has_scope("invoices:read")]
    serializer_class = CommitmentShape

    def get_queryset(self) -> QuerySet[Commitment]:
        found = Commitment.objects.select_related("team").order_by("team__code", "accelerator", "valid_from")
        own, team = teams_of(self.request), asked(self.request, "team")
        if own is not None:
            found = found.filter(team__in=own)
        return found.filter(team__code=team) if team else found
