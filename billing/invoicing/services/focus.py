"""Exporting a month as FOCUS 1.4: all files, checked, or none."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db.models import QuerySet

from billing.invoicing.acceptance import due_of
from billing.invoicing.billed import month_of_closing, row_key
from billing.invoicing.focus.billing_records import detail_rows, period_rows
from billing.invoicing.focus.columns import BILLING_PERIOD, CONTRACT_COMMITMENT, COST_AND_USAGE, INVOICE_DETAIL
from billing.invoicing.focus.conformance import Conformance
from billing.invoicing.focus.contract_commitments import Issue, Terms, commitment_rows
from billing.invoicing.focus.cost_and_usage import SplitLine, of_commitment, rows_of
from billing.invoicing.focus.files import data_set_files
from billing.invoicing.focus.hours import HourlyUsage, hourly_usage, windows_closed_before
from billing.invoicing.focus.shares import shares_of
from billing.invoicing.focus.version_1_0 import COST_AND_USAGE_1_0, as_1_0
from billing.invoicing.issued import Issued, issued_documents
from billing.invoicing.models import BillingPeriod, Note, NoteLine
from billing.invoicing.selectors import document_of
from billing.rates.selectors import commitment_book, commitment_facts, rate_card
from billing.rating.models import Charge
from billing.tenancy.selectors import house_calendar
from metering.intervals import Interval
from pricing.allocation import ALLOCATED
from pricing.contexts import priced_class
from pricing.money import split_amount
from pricing.rating import LineKey

RATIO_PLACES = 12
DATA_SETS = {"cost-and-usage": COST_AND_USAGE, "invoice-detail": INVOICE_DETAIL, "billing-period": BILLING_PERIOD}
EARLIER = "1.0-cost-and-usage"


class UnexplainedError(Exception):
    """A line that the stored usage no longer explains."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    files: list[Path]
    rows: int
    invoices: int
    billed_cost: Decimal


def focus_export(
    *, month: str, directory: Path, with_1_0: bool = False, with_csv: bool = True,
    advance: Callable[[int], None] = lambda _: None,
) -> Exported:  # fmt: skip
    """Write Cost and Usage, Invoice Detail and Billing Period of the month's issued documents as CSV and Parquet.

    Contract Commitment is written where a document bills a commitment. with_1_0: also Cost and Usage with the columns of
    FOCUS 1.0, as a data set of its own.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError; then no file is there that was not before.
    """
    period, issued = issued_documents(month)
    source = _Source(period)
    notes = _NoteSource([document for document in issued if isinstance(document, Note)])
    window = Interval(period.start, period.end)
    conformance = Conformance(window, windows_closed_before(period.ordinal or 0))
    totals = {document.number or "": document.total for document in issued}
    count, files = 0, []
    terms, calendar = _terms(period, issued), house_calendar()
    with ExitStack() as stack:
        writers = {}
        committed = {"contract-commitment": CONTRACT_COMMITMENT} if terms else {}
        for name, schema in (DATA_SETS | committed | ({EARLIER: COST_AND_USAGE_1_0} if with_1_0 else {})).items():
            named = f"focus-{name}-{month}"
            writers[name], paths = stack.enter_context(data_set_files(directory, named, schema, with_csv=with_csv))
            files += paths
        for stored in issued:
            document = document_of(stored)
            split = notes.split(stored, document) if isinstance(stored, Note) else source.split(document)
            due = due_of(stored, document["period"]["zone"], calendar)
            rows, details = rows_of(document, split), detail_rows(document, _issued_at(stored), due)
            conformance.cost_and_usage(rows)
            conformance.invoice_detail(details)
            writers["cost-and-usage"].write(rows)
            if with_1_0:
                writers[EARLIER].write(as_1_0(rows))
            writers["invoice-detail"].write(details)
            count += len(rows)
            advance(1)
        periods = _periods(period, issued)
        conformance.billing_period(periods)
        writers["billing-period"].write(periods)
        if terms:
            commitments = commitment_rows(terms, _issue(period, issued))
            conformance.contract_commitment(commitments)
            writers["contract-commitment"].write(commitments)
        conformance.finish(totals)
    return Exported(files, count, len(issued), sum(totals.values(), Decimal("0.00")))


def _terms(period: BillingPeriod, documents: list[Issued]) -> list[Terms]:
    """The commitments that a document bills, with the list price where they began in the month."""
    lines = [line for document in documents for line in document_of(document)["lines"]]
    named = {line["policy"] for line in lines if of_commitment(line)}
    if not named:
        return []
    book, card, facts = commitment_book(), rate_card(), commitment_facts()
    window = Interval(period.start, period.end)
    found = []
    for one in book.commitments:
        if one.name in named:
            part = one.part_of(window)
            price = card.list_price(one.accelerator, part.start if part else one.valid_from)
            found.append(Terms(one, *facts[one.name], price))
    return sorted(found, key=lambda item: item.commitment.name)


def _issue(period: BillingPeriod, documents: list[Issued]) -> Issue:
    first = document_of(documents[0])
    return Issue(Interval(period.start, period.end), period.zone, first["currency"], first["issuer"]["name"])


def _periods(period: BillingPeriod, documents: list[Issued]) -> Any:
    issued = [_issued_at(document) for document in documents]
    issuers = sorted({document_of(document)["issuer"]["name"] for document in documents})
    closed_at = period.closed_at or max(issued)
    return period_rows(start=period.start, end=period.end, closed_at=closed_at, issued_at=issued, issuers=issuers)


def _issued_at(document: Issued) -> Any:
    return document.issued_at


class _Source:
    """The usage behind the lines of a period, each line checked against its charge before it is split."""

    def __init__(self, period: BillingPeriod) -> None:
        self._usage: HourlyUsage = hourly_usage(period)
        rows = Charge.objects.filter(closing=period.ordinal, platform=False)
        self._charged = dict(rows.values_list("line_key", "usage_quantity"))
        self._ratios = _ratios(rows.filter(kind__in=ALLOCATED))
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
                f"`manage.py period_verify {document['period']['month']}`{_unrated(self._usage)}"
            )
        shares = shares_of(line, places, self._windows[line["charge_period"]])
        return SplitLine(line, shares, self._usage.evidence.get(key, {}), self._usage.list_prices.get(key),
                         self._ratios.get(key.digest()))  # fmt: skip


def _ratios(rows: QuerySet[Charge]) -> dict[str, Decimal]:
    """The share that each part of idle time or shared cost is of its whole, by line; those of one whole add up to 1."""
    wholes: dict[tuple[str, ...], list[tuple[str, Decimal]]] = defaultdict(list)
    for row in rows.order_by("team"):
        wholes[row.kind, row.policy, row.cluster, row.sku].append((row.line_key, row.usage_quantity))
    found: dict[str, Decimal] = {}
    for parts in wholes.values():
        ratios = split_amount(Decimal(1), [amount for _, amount in parts], RATIO_PLACES)
        found |= dict(zip([name for name, _ in parts], ratios, strict=True))
    return found


class _NoteSource:
    """The usage behind the lines of notes: of the close which charged it first, as the changes until then say."""

    def __init__(self, notes: list[Note]) -> None:
        self._months = month_of_closing()
        self._windows = {row.month: Interval(row.start, row.end) for row in BillingPeriod.objects.all()}
        self._rows: dict[int, list[NoteLine]] = {note.pk: list(note.lines.order_by("position")) for note in notes}
        wanted: dict[tuple[int, int], set[LineKey]] = {}
        for note in notes:
            for row in self._rows[note.pk]:
                wanted.setdefault((row.closing, row.known), set()).add(self._key(note, row))
        periods = {row.ordinal: row for row in BillingPeriod.objects.filter(ordinal__in={closing for closing, _ in wanted})}
        self._usage = {
            (closing, known): hourly_usage(periods[closing], only=keys, known=known)
            for (closing, known), keys in wanted.items()
        }

    def _key(self, note: Note, row: NoteLine) -> LineKey:
        return row_key(row, note.team.code, correction=row.charge_period != self._months[row.closing])

    def split(self, note: Note, document: Mapping[str, Any]) -> list[SplitLine]:
        """The lines of a note by hour and job of the usage that they are about.  Raises UnexplainedError."""
        rows = self._rows[note.pk]
        return [self._line(note, row, line) for row, line in zip(rows, document["lines"], strict=True)]

    def _line(self, note: Note, row: NoteLine, line: Mapping[str, Any]) -> SplitLine:
        key = self._key(note, row)
        usage = self._usage[row.closing, row.known]
        places = usage.places.get(key, {})
        if not places:
            raise UnexplainedError(
                f"line {row.position} of {note.number} no longer follows from any usage{_unrated(usage)}"
            )
        shares = shares_of(line, places, self._windows[row.charge_period])
        return SplitLine(line, shares, usage.evidence.get(key, {}), usage.list_prices.get(key))


def _unrated(usage: HourlyUsage) -> str:
    return "".join(f"; team {team} cannot be rated: {problem}" for team, problem in sorted(usage.faults.items()))


def line_key(team: str, line: Mapping[str, Any]) -> LineKey:
    """The key of the charge that a document's line states."""
    return LineKey(
        team=team, platform=False, correction=line["charge_class"] is not None, charge_period=line["charge_period"],
        kind=line["kind"], cluster=line["cluster"] or "", namespace=line["namespace"] or "",
        consumer=line["consumer"] or "", accelerator=line["accelerator"] or "", sku=line["sku"],
        token_class=priced_class(line["token_class"] or "", line.get("context", "")), unit=line["unit"],
        price_version=line["price_version"],
        policy=line["policy"] or "", reason=line["reason"] or "",
    )  # fmt: skip
