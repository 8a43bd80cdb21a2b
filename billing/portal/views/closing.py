"""Can this month be closed? The report, and the operations that close and issue."""

from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.closing.exception_kinds import WAIVABLE
from billing.closing.report import Report, build_report
from billing.closing.services.accrual import accrual_last
from billing.closing.services.energy import ReadingError, meter_reading_put
from billing.closing.services.operations import operation_request
from billing.closing.services.reopening import why_not_reopenable
from billing.closing.services.waivers import WaiverError, exception_waive, last_day
from billing.closing.snapshots import report_shown
from billing.closing.tasks import operation_wake
from billing.exports.services.journal import AcknowledgementError, journal_acknowledge
from billing.invoices.models import BillingPeriod, Invoice, Operation
from billing.invoices.services.invoices import ApprovalError, invoices_approve
from billing.invoices.services.periods import period_open
from billing.portal.access import page_for, staff_page
from billing.portal.charts import pools_chart
from billing.portal.fresh import page_freshness
from billing.portal.htmx import HtmxRequest
from billing.portal.months import month_choice, period_shown
from billing.portal.selectors import operations_of
from billing.portal.tables import Column, Row, Table, download
from billing.tenancy.access import Right
from billing.tenancy.models import BillingSetup
from billing.usage.scope import EVERYTHING
from metering.messages import Message

USES = ("charged", "platform", "unowned", "unpriced", "idle")
KINDS = ("close", "issue", "assess")


@require_safe
@staff_page
def close(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Every reconciliation and exception of a month, with what to do about each."""
    return close_page(request, setup, request.GET.get("month", ""))


def close_page(request: HttpRequest, setup: BillingSetup, month: str, *, refused: str = "") -> HttpResponse:
    """The page of a month; with what was `refused` of it, as a conflict."""
    choice = month_choice(month, setup, timezone.now())
    period = choice.period
    report, as_of = _report(period)
    fresh = page_freshness(request, period, EVERYTHING, as_of=as_of)
    tables = {
        "exceptions": lambda: _exceptions(report), "pools": lambda: _pools(report), "checks": lambda: _checks(report),
        "reopenings": lambda: _reopenings(report), "tokens": lambda: _tokens(report),
    }  # fmt: skip
    if (file := download(request, tables)) is not None:
        return file
    operations = operations_of(choice.month)
    never_closed = period.status == BillingPeriod.Status.OPEN
    drafted = Invoice.objects.filter(period__month=choice.month, shadow=False)
    invoices = [] if never_closed else list(drafted.values_list("status", flat=True))
    context = {
        "nav": "close", "waivable": WAIVABLE, "setup": setup, "choice": choice, "period": period, "report": report,
        "pools_chart": pools_chart(report.pools, USES), "operations": operations, "reported": sum(report.tokens.values()),
        "fresh": fresh,
        "busy": any(item.status == Operation.Status.PENDING for item in operations),
        "drafts": sum(status in (Invoice.Status.DRAFT, Invoice.Status.PREVIEW) for status in invoices),
        "approved": sum(status == Invoice.Status.APPROVED for status in invoices),
        "issued": sum(status == Invoice.Status.ISSUED for status in invoices),
        "is_closed": period.status == BillingPeriod.Status.CLOSED, "as_of": as_of, "refused": refused,
        "reopenable": not never_closed and not why_not_reopenable(period, setup),
        "is_held": any(item.kind == "team_held" for item in report.exceptions),
        "waits": next((item for item in report.reopenings if item.waits), None),
        "never_closed": never_closed, "accrual": accrual_last(period) if never_closed and period.pk else None,
    }  # fmt: skip
    return render(request, "portal/close.html", context, status=409 if refused else 200)


def _report(period: BillingPeriod) -> tuple[Report, datetime | None]:
    """The report as it is now (None), or of a large month as it was last found, and when. The close itself asks anew."""
    now = timezone.now()
    shown = report_shown(period, now)
    return (shown.report, shown.as_of) if shown else (build_report(period, now=now), None)


@require_POST
@page_for(Right.CLOSE)
def acknowledge(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Record that the ledger took the journal of a month; a refusal is told on the page."""
    shown = period_shown(month, setup)
    batch, reference = (request.POST.get(name, "").replace("\0", "") for name in ("batch_hash", "reference"))
    actor, now = request.user.get_username(), timezone.now()
    try:
        journal_acknowledge(month=shown.month, batch=batch, reference=reference, actor=actor, now=now)
    except AcknowledgementError as error:
        return close_page(request, setup, shown.month, refused=error.message)
    return redirect(f"{reverse('portal:close')}?month={shown.month}")


@require_POST
@page_for(Right.CLOSE)
def waive(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Answer for an exception until a day; a refusal is told on the page."""
    kind, subject, reason, until = (
        request.POST.get(name, "").replace("\0", "").strip() for name in ("kind", "subject", "reason", "until")
    )
    shown = period_shown(month, setup)
    try:
        if shown.status == BillingPeriod.Status.CLOSED:
            raise WaiverError(Message("period %(month)s is closed: nothing holds it", month=shown.month))
        exception_waive(
            period=period_open(month=shown.month), kind=kind, subject=subject, reason=reason,
            actor=request.user.get_username(), now=timezone.now(), until=last_day(until),
        )  # fmt: skip
    except WaiverError as error:
        return close_page(request, setup, shown.month, refused=error.message)
    return redirect(f"{reverse('portal:close')}?month={shown.month}")


@require_POST
@page_for(Right.CLOSE)
def meter(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Tell what a meter counted; a refusal is told on the page."""
    shown = period_shown(month, setup)
    cluster, metered, shared, source = (
        request.POST.get(name, "").replace("\0", "") for name in ("cluster", "metered_kwh", "shared_kwh", "source")
    )
    try:
        meter_reading_put(
            month=shown.month, cluster=cluster, metered=metered, shared=shared, source=source,
            actor=request.user.get_username(), now=timezone.now(),
        )  # fmt: skip
    except ReadingError as error:
        return close_page(request, setup, shown.month, refused=error.message)
    return redirect(f"{reverse('portal:close')}?month={shown.month}")


@require_POST
@page_for(Right.APPROVE)
def approve(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Approve the drafts of a closed month; who closed it is refused, and told so on the page."""
    shown = period_shown(month, setup)
    try:
        invoices_approve(month=shown.month, actor=request.user.get_username())
    except ApprovalError as error:
        return close_page(request, setup, shown.month, refused=error.message)
    return redirect(f"{reverse('portal:close')}?month={shown.month}")


def _exceptions(report: Report) -> Table:
    columns = [
        Column("kind"), Column("subject"), Column("quantity", "quantity"), Column("unit"), Column("amount", "money"),
        Column("blocks"), Column("owner"), Column("action"), Column("waived_by"),
    ]  # fmt: skip
    rows: list[Row] = [
        [item.kind, item.subject, item.quantity, item.unit, item.amount, str(item.blocks).lower(), item.facts.owner.value,
         str(item.action), item.waived_by]
        for item in report.exceptions
    ]  # fmt: skip
    return Table(f"exceptions-{report.period}", columns, rows)


def _pools(report: Report) -> Table:
    names = (*USES, "capacity")
    columns = [Column("cluster"), Column("accelerator"), *(Column(f"{name}_gpu_seconds", "quantity") for name in names)]
    rows: list[Row] = [[pool["cluster"], pool["accelerator"], *(pool[name] for name in names)] for pool in report.pools]
    return Table(f"pools-{report.period}", columns, rows)


def _reopenings(report: Report) -> Table:
    names = (
        "status", "reason", "requested_by", "requested_at", "closed_by", "closed_at", "decided_by", "decided_at", "decision"
    )  # fmt: skip
    rows: list[Row] = [[*(getattr(item, name) for name in names), item.drafts] for item in report.reopenings]
    columns = [*(Column(name) for name in names), Column("drafts_voided", "count")]
    return Table(f"reopenings-{report.period}", columns, rows)


def _tokens(report: Report) -> Table:
    rows: list[Row] = [[report.period, name, count] for name, count in report.tokens.items()]
    return Table(f"tokens-{report.period}", [Column("month"), Column("token_class"), Column("tokens", "count")], rows)


def _checks(report: Report) -> Table:
    names = ("check", "ok", "compared", "detail")
    rows: list[Row] = [[item.name, str(item.ok).lower(), str(item.compared).lower(), item.detail] for item in report.checks]
    return Table(f"checks-{report.period}", [Column(name) for name in names], rows)


@require_POST
@page_for(Right.CLOSE)
def operation_start(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Record that the month is to be closed, issued or assessed again; a worker brings it about."""
    kind = request.POST.get("kind", "")
    period = period_shown(month, setup)
    if kind not in KINDS:
        raise Http404(f"no operation {kind!r}")
    pending = Operation.objects.filter(kind=kind, month=period.month, status=Operation.Status.PENDING)
    if not pending.exists():
        operation_request(kind=kind, month=period.month, actor=request.user.get_username(), wake=operation_wake)
    return redirect(f"{reverse('portal:close')}?month={period.month}")


@require_safe
@staff_page
def operation(request: HtmxRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """How far an operation is; once it is finished the page around it is loaded again."""
    found = get_object_or_404(Operation, pk=pk)
    response = render(request, "portal/parts/operation.html", {"operation": found, "setup": setup})
    if found.status != Operation.Status.PENDING and request.htmx:
        response["HX-Refresh"] = "true"
    return response
