"""Endpoints to read prices, charges, invoices, periods. Rows that a token or person may not see are not found."""

from typing import Any, ClassVar

import msgspec
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import MONTH, TEAM, Endpoint, rows_seen
from billing.closing.report import build_report
from billing.closing.services.accrual import accrual_last
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import invoice_as_dict, period_of
from billing.invoices.services.documents import CONTENT_TYPES, document_file
from billing.rates.models import GpuPrice, PriceVersion, TokenPrice
from billing.rating.models import Charge
from billing.rating.selectors import withdrawn_closes
from billing.tenancy.actors import actor_of
from billing.tenancy.models import Team
from billing.tenancy.selectors import NoSetupError


class TeamSerializer(serializers.ModelSerializer[Team]):
    """Team as the API shows it."""

    parent = serializers.CharField(  # type: ignore[assignment]  # a field of the answer; DRF keeps it apart from `Field.parent`
        source="parent.code", default=None, read_only=True
    )  # fmt: skip

    class Meta:
        model = Team
        fields = ("code", "name", "cost_center", "department", "legal_entity", "parent", "is_group")


class Teams(Endpoint, ListAPIView[Team]):
    """Teams and groups."""

    permission_classes = [has_scope("invoices:read")]
    serializer_class = TeamSerializer

    def get_queryset(self) -> QuerySet[Team]:
        teams = Team.objects.select_related("parent")
        own = actor_of(self.request).teams()
        return teams if own is None else teams.filter(pk__in=own)


class GpuPriceSerializer(serializers.ModelSerializer[GpuPrice]):
    """Price of an accelerator or of a resource with a price of its own."""

    class Meta:
        model = GpuPrice
        fields = ("accelerator", "resource", "unit", "price")


class TokenPriceSerializer(serializers.ModelSerializer[TokenPrice]):
    """Price of 1M tokens of a class."""

    class Meta:
        model = TokenPrice
        fields = ("model", "token_class", "price")


class PriceVersionSerializer(serializers.ModelSerializer[PriceVersion]):
    """Complete price list in force for a time."""

    gpu = GpuPriceSerializer(many=True, read_only=True)
    tokens = TokenPriceSerializer(many=True, read_only=True)

    class Meta:
        model = PriceVersion
        fields: tuple[str, ...] = ("name", "currency", "valid_from", "valid_until", "gpu", "tokens")


class PriceVersions(Endpoint, ListAPIView[PriceVersion]):
    """Published price versions."""

    permission_classes = [has_scope("prices:read")]
    serializer_class = PriceVersionSerializer
    queryset = PriceVersion.objects.filter(sealed=True).prefetch_related("gpu", "tokens")


class Prices(PriceVersions):
    """Price version in force now."""

    def get_queryset(self) -> QuerySet[PriceVersion]:
        now = timezone.now()
        versions = super().get_queryset().filter(valid_from__lte=now)
        return versions.filter(valid_until=None) | versions.filter(valid_until__gt=now)


class ChargeSerializer(serializers.ModelSerializer[Charge]):
    """Charge before rounding: `usage_quantity` in microseconds or tokens."""

    class Meta:
        model = Charge
        exclude = ("id", "line_key", "close_seq")


class Charges(Endpoint, ListAPIView[Charge]):
    """Charges of closed periods."""

    parameters = [MONTH, TEAM]
    permission_classes = [has_scope("invoices:read")]
    serializer_class = ChargeSerializer

    def get_queryset(self) -> QuerySet[Charge]:
        charges = Charge.objects.exclude(close_seq__in=withdrawn_closes()).order_by("id")
        return rows_seen(charges, self.request, team="team", month="charge_period")


class InvoiceSerializer(serializers.Serializer[Invoice]):
    """Invoice in the contract's form."""

    number = serializers.CharField()
    team = serializers.CharField()
    currency = serializers.CharField()
    total = serializers.CharField()
    sha256 = serializers.CharField()
    lines = serializers.ListField(child=serializers.DictField())

    def to_representation(self, instance: Invoice) -> dict[str, Any]:
        return {"period": instance.period.month, **invoice_as_dict(instance)}


def _issued() -> QuerySet[Invoice]:
    issued = Invoice.objects.filter(status=Invoice.Status.ISSUED).select_related("team", "period")
    return issued.prefetch_related("events").order_by("number")


class Invoices(Endpoint, ListAPIView[Invoice]):
    """Issued invoices."""

    parameters = [MONTH, TEAM]
    permission_classes = [has_scope("invoices:read")]
    serializer_class = InvoiceSerializer

    def get_queryset(self) -> QuerySet[Invoice]:
        return rows_seen(_issued(), self.request, team="team__code", month="period__month")


class IssuedDocument(Endpoint):
    """Base of the endpoints of one issued document, by its number."""

    permission_classes = [has_scope("invoices:read")]
    serializer_class: ClassVar[type[serializers.BaseSerializer[Any]]]

    def issued(self) -> QuerySet[Any]:
        """Return every issued document of this kind."""
        raise NotImplementedError

    def get(self, request: Request, number: str, suffix: str | None = None) -> HttpResponse | Response:
        own, issued = actor_of(request).teams(), self.issued()
        seen = issued if own is None else issued.filter(team__in=own)
        document = get_object_or_404(seen, number=number)
        if suffix in (None, "json"):
            shown = self.serializer_class(document).data
            text = {"document": document_file(document, "json").decode()}
            return Response(shown if suffix is None else self.as_file({**shown, **text}))
        named = {"Content-Disposition": f'attachment; filename="{number}.{suffix}"'}
        body, content_type = document_file(document, str(suffix)), CONTENT_TYPES[str(suffix)]
        return HttpResponse(body, content_type=content_type, headers=named)

    def as_file(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Return the `.json` of a document; `document` is its canonical text, of which `sha256` is the hash."""
        return shown


@extend_schema_view(get=extend_schema(responses={200: InvoiceSerializer, (200, "application/pdf"): OpenApiTypes.BINARY}))
class InvoiceDocument(IssuedDocument):
    """One invoice as JSON, PDF, CSV or XLSX."""

    serializer_class = InvoiceSerializer

    def issued(self) -> QuerySet[Invoice]:
        return _issued()

    def as_file(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Add the list that `invoice_issue --json` prints; the other fields are for earlier readers."""
        listed = {name: value for name, value in shown.items() if name not in ("period", "document")}
        return {**shown, "invoices": [listed]}


class Period(Endpoint):
    """One billing period."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> Response:
        period = _period(month)
        own = actor_of(request).teams()
        live = Invoice.objects.filter(period__month=month).exclude(status=Invoice.Status.VOID)
        invoices = live if own is None else live.filter(team__in=own)
        return Response(
            {
                "month": period.month, "zone": period.zone, "start": period.start, "end": period.end,
                "status": period.status, "closed_at": period.closed_at, "invoices": invoices.count(),
            }
        )  # fmt: skip


class PeriodReport(Endpoint):
    """Period report as JSON: answers "can we close this month?"."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> HttpResponse:
        if actor_of(request).teams() is not None:
            raise Http404  # a report shows every team
        report = build_report(_period(month), now=timezone.now())
        # in the contract the quantities of the report are numbers, not strings
        encoder = msgspec.json.Encoder(decimal_format="number")
        return HttpResponse(encoder.encode(report.as_dict()), content_type="application/json")


class PeriodAccrual(Endpoint):
    """Last accrual of a month: the estimate that finance booked before the month was billed."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> Response:
        period = _period(month)
        shown = period.pk is not None and actor_of(request).teams() is None  # it shows every team
        made = accrual_last(period) if shown else None
        if made is None:
            raise Http404
        return Response({"sha256": made.accrual.sha256, "revision": made.accrual.revision, **made.document})


def _period(month: str) -> BillingPeriod:
    """Return the stored period, or an unsaved one: a month that nobody opened may have usage.  Raises Http404."""
    try:
        return period_of(month)
    except (NoSetupError, ValueError):
        raise Http404 from None
