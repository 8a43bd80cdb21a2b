"""Exporting a month as FOCUS 1.4: all six files, checked, or none."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from billing.invoicing.focus.billing_records import detail_rows, period_rows
from billing.invoicing.focus.columns import BILLING_PERIOD, COST_AND_USAGE, INVOICE_DETAIL
from billing.invoicing.focus.conformance import Conformance
from billing.invoicing.focus.cost_and_usage import SplitLine, rows_of
from billing.invoicing.focus.files import data_set_files
from billing.invoicing.focus.hours import HourlyUsage, hourly_usage, windows_closed_before
from billing.invoicing.focus.shares import shares_of
from billing.invoicing.issued import issued_invoices
from billing.invoicing.models import BillingPeriod, Invoice
from billing.invoicing.selectors import document_of
from billing.rating.models import Charge
from metering.intervals import Interval
from pricing.rating import LineKey

DATA_SETS = {"cost-and-usage": COST_AND_USAGE, "invoice-detail": INVOICE_DETAIL, "billing-period": BILLING_PERIOD}


class UnexplainedError(Exception):
    """A line that the stored usage no longer explains."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    files: list[Path]
    rows: int
    invoices: int
    billed_cost: Decimal


def focus_export(*, month: str, directory: Path, advance: Callable[[int], None] = lambda _: None) -> Exported:
    """Write Cost and Usage, Invoice Detail and Billing Period of the month's issued invoices as CSV and Parquet.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError; then no file is there that was not before.
    """
    period, invoices = issued_invoices(month)
    source = _Source(period)
    window = Interval(period.start, period.end)
    conformance = Conformance(window, windows_closed_before(period.ordinal or 0))
    totals = {invoice.number or "": invoice.total for invoice in invoices}
    count, files = 0, []
    with ExitStack() as stack:
        writers = {}
        for name, schema in DATA_SETS.items():
            writer, paths = stack.enter_context(data_set_files(directory, f"focus-{name}-{month}", schema))
            writers[name], files = writer, [*files, *paths]
        for invoice in invoices:
            document = document_of(invoice)
            rows, details = rows_of(document, source.split(document)), detail_rows(document, _issued_at(invoice))
            conformance.cost_and_usage(rows)
            conformance.invoice_detail(details)
            writers["cost-and-usage"].write(rows)
            writers["invoice-detail"].write(details)
            count += len(rows)
            advance(1)
        periods = _periods(period, invoices)
        conformance.billing_period(periods)
        writers["billing-period"].write(periods)
        conformance.finish(totals)
    return Exported(files, count, len(invoices), sum(totals.values(), Decimal("0.00")))


def _periods(period: BillingPeriod, invoices: list[Invoice]) -> Any:
    issued = [_issued_at(invoice) for invoice in invoices]
    issuers = sorted({document_of(invoice)["issuer"]["name"] for invoice in invoices})
    closed_at = period.closed_at or max(issued)
    return period_rows(start=period.start, end=period.end, closed_at=closed_at, issued_at=issued, issuers=issuers)


def _issued_at(invoice: Invoice) -> Any:
    return invoice.issued_at


class _Source:
    """The usage behind the lines of a period, each line checked against its charge before it is split."""

    def __init__(self, period: BillingPeriod) -> None:
        self._usage: HourlyUsage = hourly_usage(period)
        rows = Charge.objects.filter(closing=period.ordinal, platform=False)
        self._charged = dict(rows.values_list("line_key", "usage_quantity"))
        months = BillingPeriod.objects.filter(ordinal__lte=period.ordinal)
        self._windows = {row.month: Interval(row.start, row.end) for row in months}

    def split(self, document: Mapping[str, Any]) -> list[SplitLine]:
        """The lines of a document by hour and job.  Raises UnexplainedError."""
        return [self._line(document, line) for line in document["lines"]]

    def _line(self, document: Mapping[str, Any], line: Mapping[str, Any]) -> SplitLine:
        key = line_key(document["recipient"]["team"], line)
        places = self._usage.places.get(key, {})
        if sum(places.values()) != self._charged.get(key.digest()):
            raise UnexplainedError(
                f"line {line['position']} of {document['number']} no longer follows from its usage; run "
                f"`manage.py period_verify {document['period']['month']}`"
            )
        shares = shares_of(line, places, self._windows[line["charge_period"]])
        return SplitLine(line, shares, self._usage.evidence.get(key, {}))


def line_key(team: str, line: Mapping[str, Any]) -> LineKey:
    """The key of the charge that a document's line states."""
    return LineKey(
        team=team, platform=False, correction=line["charge_class"] is not None, charge_period=line["charge_period"],
        kind=line["kind"], cluster=line["cluster"] or "", namespace=line["namespace"] or "",
        consumer=line["consumer"] or "", accelerator=line["accelerator"] or "", sku=line["sku"],
        token_class=line["token_class"] or "", unit=line["unit"], price_version=line["price_version"],
        policy=line["policy"] or "", reason=line["reason"] or "",
    )  # fmt: skip
