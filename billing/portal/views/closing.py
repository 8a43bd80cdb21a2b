"""Close of a month: the report, and the operations that close and issue."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.closing.completeness import EARLY
from billing.closing.exception_kinds import ASKED, WAIVABLE, kind_of
from billing.closing.exceptions import ReportedException
from billing.closing.report import Report, build_report
from billing.closing.services.accrual import accrual_last, accrual_make
from billing.closing.services.energy import meter_reading_put
from billing.closing.services.operations import operation_request
from billing.closing.services.reopening import reopening_step, why_not_reopenable
from billing.closing.services.waivers import WaiverError, exception_waive, exceptions_waive
from billing.closing.snapshots import report_shown
from billing.closing.tasks import operation_wake
from billing.exports.journal import Chart
from billing.exports.services.journal import journal_acknowledge
from billing.invoices.models import BillingPeriod, Invoice, Operation
from billing.invoices.services.invoices import invoices_approve
from billing.invoices.services.periods import period_open
from billing.portal.access import action_for, staff_action, staff_page
from billing.portal.charts import pools_chart
from billing.portal.forms import Day, Line, Number, PageForm, Text, acting
from billing.portal.fresh import page_freshness
from billing.portal.htmx import HtmxRequest
from billing.portal.months import month_choice, period_shown
from billing.portal.selectors import operations_of
from billing.portal.tables import Column, Table, columns, constant, download
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from billing.usage.scope import EVERYTHING
from metering.messages import Message

USES = ("charged", "platform", "unowned", "unpriced", "idle")
EXCEPTION = [
    *columns("kind", "subject"), Column("quantity", "quantity"), Column("unit"), Column("amount", "money"),
    Column("blocks", of=lambda item: str(item.blocks).lower()), Column("owner", of="facts.owner.value"),
    Column("action", of=lambda item: str(item.action)), Column("waived_by"),
]  # fmt: skip
POOL = [
    *(Column(name, of=itemgetter(name)) for name in ("cluster", "accelerator")),
    *(Column(f"{name}_gpu_seconds", "quantity", itemgetter(name)) for name in (*USES, "capacity")),
]
REOPENING = [
    *columns("status", "reason", "requested_by", "requested_at", "closed_by", "closed_at", "decided_by", "decided_at"),
    Column("decision"), Column("drafts_voided", "count", "drafts"),
]  # fmt: skip
TOKENS = [Column("token_class", of=itemgetter(0)), Column("tokens", "count", itemgetter(1))]
CHECK = [
    Column("check", of="name"), Column("ok", of=lambda item: str(item.ok).lower()),
    Column("compared", of=lambda item: str(item.compared).lower()), Column("detail"),
]  # fmt: skip
REACHED = [*columns("kind", "name"), Column("from_file", of=lambda one: str(one.from_file).lower()), Column("through")]
NEEDED = {"request": (Right.CLOSE,), "approve": (Right.APPROVE,), "reject": (Right.APPROVE, Right.CLOSE)}


@staff_page
def close(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show every reconciliation and exception of a month, with the solution of each."""
    return close_page(request, setup, request.GET.get("month", ""))


def close_page(request: HttpRequest, setup: BillingSetup, month: str, refused: PageForm | None = None) -> HttpResponse:
    """Render the page of a month; with a refused form, as a conflict."""
    choice = month_choice(month, setup, timezone.now())
    period = choice.period
    report, as_of = _report(period)
    fresh = page_freshness(request, period, EVERYTHING, as_of=as_of)
    tables = {
        "exceptions": lambda: Table.of(f"exceptions-{report.period}", report.exceptions, EXCEPTION),
        "pools": lambda: Table.of(f"pools-{report.period}", report.pools, POOL),
        "checks": lambda: Table.of(f"checks-{report.period}", report.checks, CHECK),
        "unmatched": lambda: Table.of(f"unmatched-{report.period}", report.unmatched, columns("kind", "subject")),
        "reached": lambda: Table.of(f"reached-{report.period}", report.reached, REACHED),
        "reopenings": lambda: Table.of(f"reopenings-{report.period}", report.reopenings, REOPENING),
        "tokens": lambda: Table.of(
            f"tokens-{report.period}", report.tokens.items(), [constant("month", report.period), *TOKENS]
        ),
    }  # fmt: skip
    if (file := download(request, tables)) is not None:
        return file
    operations = operations_of(choice.month)
    never_closed = period.status == BillingPeriod.Status.OPEN
    drafted = Invoice.objects.filter(period__month=choice.month, shadow=False)
    invoices = [] if never_closed else list(drafted.values_list("status", "pk"))
    drafts = [pk for status, pk in invoices if status in (Invoice.Status.DRAFT, Invoice.Status.PREVIEW)]
    context = {
        "nav": "close", "setup": setup, "choice": choice, "period": period, "report": report,
        "pools_chart": pools_chart(report.pools, USES), "operations": operations, "reported": sum(report.tokens.values()),
        "fresh": fresh,
        "busy": any(item.status == Operation.Status.PENDING for item in operations),
        "drafts": len(drafts), "newest_draft": max(drafts, default=0),
        "approved": sum(status == Invoice.Status.APPROVED for status, _ in invoices),
        "issued": sum(status == Invoice.Status.ISSUED for status, _ in invoices),
        "is_closed": period.status == BillingPeriod.Status.CLOSED, "as_of": as_of, "refused": refused,
        "exceptions": [
            (item, _waiver(item).or_refused(refused) if _is_asked(item) else None)
            for item in sorted(report.exceptions, key=lambda item: not item.blocks)
        ],
        "causes": [] if period.status == BillingPeriod.Status.CLOSED else _causes(report, refused),
        "forms": {name: form.or_refused(refused) for name, form in _forms(report).items()},
        "reopenable": not never_closed and not why_not_reopenable(period, setup),
        "is_held": any(item.kind == "team_held" for item in report.exceptions),
        "waits": next((item for item in report.reopenings if item.waits), None),
        "complete": all(one.through >= min(period.end, timezone.now()) - EARLY for one in report.reached),
        "never_closed": never_closed, "accrual": accrual_last(period) if never_closed and period.pk else None,
    }  # fmt: skip
    return render(request, "portal/close.html", context, status=409 if refused else 200)


def _report(period: BillingPeriod) -> tuple[Report, datetime | None]:
    """Return the report as of now (None), or a large month's last report with its time. The close itself makes a new one."""
    now = timezone.now()
    shown = report_shown(period, now)
    return (shown.report, shown.as_of) if shown else (build_report(period, now=now), None)


class AcknowledgementForm(PageForm):
    """Form of a journal's acknowledgement: its reference in the ledger."""

    batch_hash = Text(widget=forms.HiddenInput)
    reference = Text(label=_("Reference in the ledger"), max_length=200)


class JournalForm(PageForm):
    """Form of the accounts of a journal; an empty field is filled from the file, else from the documents."""

    company_code = Line(label=_("Company code"), max_length=64, required=False)
    consumer_account = Line(label=_("Debited account"), max_length=200, required=False)
    provider_account = Line(label=_("Credited account"), max_length=200, required=False)
    provider_cost_center = Line(label=_("Credited cost centre"), max_length=64, required=False)
    posting_date = Day(label=_("Posting date"), required=False)
    accounts = forms.FileField(
        label=_("Chart of accounts (YAML)"), required=False, max_length=200, help_text=_("optional"),
        allow_empty_file=True,
    )  # fmt: skip
    accepted = forms.BooleanField(
        label=_("Only accepted documents; disputed ones once their five business days are over"), required=False
    )
    spreadsheet = forms.BooleanField(
        label=_("To read in a spreadsheet: text that begins like a formula gets an apostrophe, which a ledger must not get"),
        required=False,
    )


class WaiverForm(PageForm):
    """Form of a waiver: the reason why an exception may pass, and its last day."""

    known_by = ("kind", "subject")
    kind = Text(widget=forms.HiddenInput)
    subject = Text(widget=forms.HiddenInput, required=False)
    quantity = Number(label=_("Quantity"), widget=forms.HiddenInput)
    reason = Text(label=_("Reason"))
    until = Day(label=_("Until"))


class CauseForm(PageForm):
    """Form of a waiver for all exceptions of one cause: the reason, and its last day."""

    known_by = ("cause",)
    cause = Text(widget=forms.HiddenInput)
    seen = forms.JSONField(widget=forms.HiddenInput)
    reason = Text(label=_("Reason"))
    until = Day(label=_("Until"))

    def clean_seen(self) -> list[tuple[str, str, Decimal]]:
        """Return kind, subject and quantity of each exception that the page showed."""
        try:
            seen = msgspec.convert(self.cleaned_data["seen"], list[tuple[str, str, Decimal]])
        except msgspec.ValidationError as error:
            raise forms.ValidationError(_("is missing")) from error
        return seen


@dataclass(frozen=True, slots=True)
class Cause:
    """Exceptions that block the close for one cause, with the form that waives them together.

    amount: the money at risk, None if it cannot be known.
    """

    name: str
    items: list[ReportedException]
    form: PageForm

    @property
    def amount(self) -> Decimal | None:
        amounts = [item.amount for item in self.items]
        return None if None in amounts else sum(filter(None, amounts), Decimal(0))

    @property
    def kinds(self) -> list[tuple[Any, int]]:
        """Return the kinds of the exceptions, and the number of each."""
        counted = Counter(item.kind for item in self.items)
        return [(kind_of(kind).label, number) for kind, number in counted.items()]


def _causes(report: Report, refused: PageForm | None) -> list[Cause]:
    """Return the causes of two or more exceptions that may be waived, the one with the most first."""
    found: dict[str, list[ReportedException]] = defaultdict(list)
    for item in report.blocking:
        if item.cause and item.kind in WAIVABLE:
            found[item.cause].append(item)
    return [
        Cause(name, items, CauseForm(initial={
            "cause": name, "seen": [[item.kind, item.subject, format(item.quantity, "f")] for item in items],
        }).or_refused(refused))
        for name, items in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])) if len(items) > 1
    ]  # fmt: skip


class MeterForm(PageForm):
    cluster = Text(label=_("Cluster"), max_length=512)
    metered_kwh = Number(label=_("kWh at the building's meter"))
    shared_kwh = Number(label=_("of them shared"), required=False)
    source = Text(label=_("Which meter was read"), max_length=500)


class ReopeningForm(PageForm):
    """Form of one step of a reopening; an approval needs no reason."""

    known_by = ("step",)
    step = forms.ChoiceField(choices=[(name, name) for name in NEEDED], required=False, widget=forms.HiddenInput)
    reason = Text(label=_("Reason"), required=False, widget=forms.TextInput(attrs={"required": True}))


class OperationForm(PageForm):
    """Form of the operation that a worker does."""

    kind = forms.ChoiceField(choices=[(name, name) for name in ("close", "issue", "assess")])


class ApprovalForm(PageForm):
    """Form of an approval, with the newest draft that the page showed."""

    seen = forms.IntegerField(required=False, widget=forms.HiddenInput)


class AccrualForm(PageForm):
    """Form of an accrual; `again` asks for a new estimate."""

    again = forms.BooleanField(required=False)


def _waiver(item: Any) -> PageForm:
    return WaiverForm(initial={"kind": item.kind, "subject": item.subject, "quantity": format(item.quantity, "f")})


def _is_asked(item: ReportedException) -> bool:
    """Return True if an exception has a waiver form: a waivable blocker, or a file that ends early, which blocks nothing."""
    return item.kind in WAIVABLE and not item.waived_by and (item.blocks or item.kind in ASKED)


def _forms(report: Report) -> dict[str, PageForm]:
    """Return the forms that the page has once, in their initial state."""
    batch = report.journal.batch_hash if report.journal else ""
    return {
        "acknowledge": AcknowledgementForm(key="journal", initial={"batch_hash": batch}), "meter": MeterForm(key="meter"),
        "journal": JournalForm(key="journal-file"),
        "reject": ReopeningForm(initial={"step": "reject"}), "request": ReopeningForm(initial={"step": "request"}),
    }


def _answer(
    request: HttpRequest, setup: BillingSetup, period: BillingPeriod, form: PageForm, act: Callable[..., object],
    **facts: Any,
) -> HttpResponse:  # fmt: skip
    """Redirect to the month once `act` succeeded, else render the page with the refusal."""
    if form.done(act, actor=actor_of(request), **facts):
        return redirect(f"{reverse('portal:close')}?month={period.month}")
    return close_page(request, setup, period.month, form)


@action_for(Right.CLOSE)
def acknowledge(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    def put(batch_hash: str, **facts: Any) -> object:
        return journal_acknowledge(month=period.month, batch=batch_hash, now=timezone.now(), **facts)

    period = period_shown(month, setup)
    return _answer(request, setup, period, AcknowledgementForm(request.POST, key="journal"), put)


@action_for(Right.CLOSE)
def waive(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    def put(**facts: Any) -> object:
        if period.status == BillingPeriod.Status.CLOSED:
            raise WaiverError(Message("period %(month)s is closed: nothing blocks it", month=period.month))
        return exception_waive(period=period_open(month=period.month), now=timezone.now(), **facts)

    period = period_shown(month, setup)
    return _answer(request, setup, period, WaiverForm(request.POST), put)


@action_for(Right.CLOSE)
def waive_cause(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Waive all exceptions of one cause until a day, as far as the page showed them."""

    def put(cause: str, **facts: Any) -> object:
        return exceptions_waive(period=period_open(month=period.month), now=timezone.now(), **facts)

    period = period_shown(month, setup)
    return _answer(request, setup, period, CauseForm(request.POST), put)


@action_for(Right.CLOSE)
def meter(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    def put(metered_kwh: Decimal, shared_kwh: Decimal | None, **facts: Any) -> object:
        return meter_reading_put(
            month=period.month, metered=f"{metered_kwh:f}", shared=f"{shared_kwh or 0:f}", now=timezone.now(), **facts
        )

    period = period_shown(month, setup)
    return _answer(request, setup, period, MeterForm(request.POST, key="meter"), put)


@action_for(Right.APPROVE)
def approve(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Approve the drafts of a closed month; the service refuses the user who closed it."""
    period = period_shown(month, setup)
    return _answer(request, setup, period, ApprovalForm(request.POST), invoices_approve, month=period.month)


@staff_action
def reopening(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Take one `step` (request, approve, reject): one person requests, another one approves or rejects."""
    form = ReopeningForm(request.POST)
    if not form.is_valid():
        raise Http404(form.message)
    form.cleaned_data["step"] = step = form.cleaned_data["step"] or "request"
    if not any(access_of(request.user).may(right) for right in NEEDED[step]):
        raise PermissionDenied
    period = period_shown(month, setup)
    return _answer(request, setup, period, form, reopening_step, month=period.month, now=timezone.now())


@action_for(Right.CLOSE)
def accrual(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Return the estimated accrual of an open month as CSV for the ledger; `again` replaces it by a new one."""
    period, form = period_shown(month, setup), AccrualForm(request.POST)
    if not form.done(accrual_make, month=period.month, chart=Chart(), **acting(request)):
        return close_page(request, setup, period.month, form)
    response = HttpResponse(form.made.csv, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{form.made.accrual.name}.csv"'
    return response


@action_for(Right.CLOSE)
def operation_start(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Request a close, an issue or a new assessment of the month; a worker does it."""

    def start(kind: str, **facts: Any) -> None:
        # a second click finds the pending operation and requests no other
        if not Operation.objects.filter(kind=kind, month=period.month, status=Operation.Status.PENDING).exists():
            operation_request(kind=kind, month=period.month, wake=operation_wake, **facts)

    period, form = period_shown(month, setup), OperationForm(request.POST)
    if not form.is_valid():
        raise Http404(form.message)
    return _answer(request, setup, period, form, start)


@staff_page
def operation(request: HtmxRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show the progress of an operation; once it has finished, the page is loaded again, unless a form has input."""
    found = get_object_or_404(Operation, pk=pk)
    finished = found.status != Operation.Status.PENDING and bool(request.htmx)
    context = {"operation": found, "setup": setup, "just_finished": finished}
    response = render(request, "portal/parts/operation.html", context)
    if finished:
        response["HX-Trigger-After-Swap"] = "operation-finished"
    return response
