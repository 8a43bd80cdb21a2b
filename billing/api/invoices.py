"""The doors to read from: prices, charges, invoices, periods. What a token or person may not see is not found."""

from typing import Any

import msgspec
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.authentication import has_scope, teams_of
from billing.closing.report import build_report
from billing.closing.services.accrual import accrual_last
from billing.invoices.acceptance import printed_until
from billing.invoices.documents import render_csv, render_pdf, render_xlsx
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.selectors import document_of, invoice_as_dict, period_of
from billing.rates.models import GpuPrice, PriceVersion, TokenPrice
from billing.rating.models import Charge
from billing.rating.selectors import withdrawn_closes
from billing.tenancy.models import Team
from billing.tenancy.selectors import NoSetupError

MONTH = OpenApiParameter("month", str, description="billing month such as 2026-10")
TEAM = OpenApiParameter("team", str, description="team code")


def asked(request: Request, name: str) -> str | None:
    """A query parameter; NUL, which PostgreSQL cannot compare with, is refused."""
    value: str | None = request.query_params.get(name)
    if value is not None and "\0" in value:
        raise ParseError(f"{name} contains a NUL character")
    return value


class TeamSerializer(serializers.ModelSerializer[Team]):
    """A team as the API shows it."""

    parent = serializers.CharField(  # type: ignore[assignment]  # a field of the answer; DRF keeps it apart from `Field.parent`
        source="parent.code", default=None, read_only=True
    )  # fmt: skip

    class Meta:
        model = Team
        fields = ("code", "name", "cost_center", "parent", "is_group")


class Teams(ListAPIView[Team]):
    """Teams and groups."""

    permission_classes = [has_scope("invoices:read")]
    serializer_class = TeamSerializer

    def get_queryset(self) -> QuerySet[Team]:
        teams = Team.objects.select_related("parent")
        own = teams_of(self.request)
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
    """A complete dated price list."""

    gpu = GpuPriceSerializer(many=True, read_only=True)
    tokens = TokenPriceSerializer(many=True, read_only=True)

    class Meta:
        model = PriceVersion
        fields: tuple[str, ...] = ("name", "currency", "valid_from", "valid_until", "gpu", "tokens")


class PriceVersions(ListAPIView[PriceVersion]):
    """Every published price version."""

    permission_classes = [has_scope("prices:read")]
    serializer_class = PriceVersionSerializer
    queryset = PriceVersion.objects.filter(sealed=True).prefetch_related("gpu", "tokens")


class Prices(PriceVersions):
    """The price version in force now."""

    def get_queryset(self) -> QuerySet[PriceVersion]:
        now = timezone.now()
        versions = super().get_queryset().filter(valid_from__lte=now)
        return versions.filter(valid_until=None) | versions.filter(valid_until__gt=now)


class ChargeSerializer(serializers.ModelSerializer[Charge]):
    """A charge before rounding: `usage_quantity` in microseconds or tokens."""

    class Meta:
        model = Charge
        exclude = ("id", "line_key", "close_seq")


@extend_schema_view(get=extend_schema(parameters=[MONTH, TEAM]))
class Charges(ListAPIView[Charge]):
    """Charges of closed periods."""

    permission_classes = [has_scope("invoices:read")]
    serializer_class = ChargeSerializer

    def get_queryset(self) -> QuerySet[Charge]:
        charges = Charge.objects.exclude(close_seq__in=withdrawn_closes()).order_by("id")
        own = teams_of(self.request)
        if own is not None:
            charges = charges.filter(team__in=own.values("code"))
        if team := asked(self.request, "team"):
            charges = charges.filter(team=team)
        month = asked(self.request, "month")
        return charges.filter(charge_period=month) if month else charges


class InvoiceSerializer(serializers.Serializer[Invoice]):
    """An invoice as the contract gives it."""

    number = serializers.CharField()
    team = serializers.CharField()
    currency = serializers.CharField()
    total = serializers.CharField()
    sha256 = serializers.CharField()
    lines = serializers.ListField(child=serializers.DictField())

    def to_representation(self, instance: Invoice) -> dict[str, Any]:
        return {"period": instance.period.month, **invoice_as_dict(instance)}


def _invoices(request: Request) -> QuerySet[Invoice]:
    issued = Invoice.objects.filter(status=Invoice.Status.ISSUED).select_related("team", "period")
    invoices = issued.prefetch_related("events").order_by("number")
    own = teams_of(request)
    return invoices if own is None else invoices.filter(team__in=own)


@extend_schema_view(get=extend_schema(parameters=[MONTH, TEAM]))
class Invoices(ListAPIView[Invoice]):
    """Issued invoices."""

    permission_classes = [has_scope("invoices:read")]
    serializer_class = InvoiceSerializer

    def get_queryset(self) -> QuerySet[Invoice]:
        invoices = _invoices(self.request)
        if team := asked(self.request, "team"):
            invoices = invoices.filter(team__code=team)
        month = asked(self.request, "month")
        return invoices.filter(period__month=month) if month else invoices


class InvoiceDocument(APIView):
    """One invoice as JSON, PDF, CSV or XLSX."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: InvoiceSerializer, (200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, number: str, suffix: str | None = None) -> HttpResponse | Response:
        invoice = None if "\0" in number else _invoices(request).filter(number=number).first()
        if invoice is None:
            raise Http404
        if suffix in (None, "json"):
            return Response({"period": invoice.period.month, **invoice_as_dict(invoice)})
        body, content_type = rendered(invoice, str(suffix))
        return HttpResponse(
            body, content_type=content_type, headers={"Content-Disposition": f'attachment; filename="{number}.{suffix}"'}
        )


def rendered(invoice: Invoice | Note, suffix: str) -> tuple[bytes, str]:
    """An issued document as a file: its bytes and content type."""
    document = document_of(invoice)
    sha256, issued_at = invoice.sha256, invoice.issued_at
    if suffix == "pdf":
        return render_pdf(document, due=printed_until(invoice), sha256=sha256, issued_at=issued_at), "application/pdf"
    if suffix == "csv":
        return render_csv(document, sha256=sha256, issued_at=issued_at), "text/csv; charset=utf-8"
    body = render_xlsx(document, due=printed_until(invoice), sha256=sha256, issued_at=issued_at)
    return body, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


class Period(APIView):
    """One billing period."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> Response:
        period = _period(month)
        own = teams_of(request)
        live = Invoice.objects.filter(period__month=month).exclude(status=Invoice.Status.VOID)
        invoices = live if own is None else live.filter(team__in=own)
        return Response(
            {
                "month": period.month, "zone": period.zone, "start": period.start, "end": period.end,
                "status": period.status, "closed_at": period.closed_at, "invoices": invoices.count(),
            }
        )  # fmt: skip


class PeriodReport(APIView):
    """Answers "can we close this month?" as JSON."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> HttpResponse:
        if teams_of(request) is not None:
            raise Http404  # a report shows every team
        report = build_report(_period(month), now=timezone.now())
        encoder = msgspec.json.Encoder(decimal_format="number")
        return HttpResponse(encoder.encode(report.as_dict()), content_type="application/json")


class PeriodAccrual(APIView):
    """The estimated accrual of a month that finance closed its books on early; the last one that was made."""

    permission_classes = [has_scope("invoices:read")]

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, month: str) -> Response:
        period = _period(month)
        shown = period.pk is not None and teams_of(request) is None  # it shows every team
        made = accrual_last(period) if shown else None
        if made is None:
            raise Http404
        return Response({"sha256": made.accrual.sha256, "revision": made.accrual.revision, **made.document})


def _period(month: str) -> BillingPeriod:
    """The period as it is stored, or would be: a month that nobody opened may have usage.  Raises Http404."""
    try:
        return period_of(month.replace("\0", ""))
    except (NoSetupError, ValueError):
        raise Http404 from None
