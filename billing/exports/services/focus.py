"""Export of a month as FOCUS 1.4: all files, checked, or none."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from django.db.models import QuerySet

from billing.corrections.credited_lines import month_of_close, row_key
from billing.exports.focus.billing_records import detail_rows, period_rows
from billing.exports.focus.columns import BILLING_PERIOD, COST_AND_USAGE, INVOICE_DETAIL
from billing.exports.focus.conformance import Conformance
from billing.exports.focus.contract_commitments import CONTRACT_COMMITMENT, Issue, Terms, commitment_rows
from billing.exports.focus.cost_and_usage import ALLOCATED_PLACES, SplitLine, of_commitment, rows_of, stated
from billing.exports.focus.files import data_set_files
from billing.exports.focus.hours import HourlyUsage, UsageOfClose, windows_closed_before
from billing.exports.focus.shares import shares_of
from billing.exports.focus.version_1_0 import COST_AND_USAGE_1_0, as_1_0
from billing.invoices.acceptance import due_of
from billing.invoices.issued import Issued, issued_documents
from billing.invoices.models import BillingPeriod, Invoice, Note, NoteLine
from billing.invoices.selectors import document_of
from billing.rates.selectors import commitment_book, commitment_facts, rate_card
from billing.rating.models import Charge
from billing.tenancy.selectors import company_calendar
from metering.intervals import Interval
from metering.messages import Message, UserError
from pricing.allocation import ALLOCATED
from pricing.contexts import priced_class
from pricing.money import EXACT, split_amount
from pricing.rating import LineKey

DOCUMENTS_AT_ONCE = 20
"""Documents whose hourly usage is in memory together: fewer need less memory, but each batch reads the month again."""
DATA_SETS = {"cost-and-usage": COST_AND_USAGE, "invoice-detail": INVOICE_DETAIL, "billing-period": BILLING_PERIOD}
EARLIER = "1.0-cost-and-usage"


class UnexplainedError(UserError):
    """Line that the stored usage no longer explains."""

    code = "focus_unexplained"


@dataclass(frozen=True)
class Exported:
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
    FOCUS 1.0, as a separate data set.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError; then no new file is left.
    """
    period, issued = issued_documents(month)
    conformance = Conformance(period.window, windows_closed_before(period.close_number))
    totals = {document.number or "": document.total for document in issued}
    count, files = 0, []
    terms, calendar = _terms(period, issued), company_calendar()
    with ExitStack() as stack:
        write = {}
        committed = {"contract-commitment": CONTRACT_COMMITMENT} if terms else {}
        for name, schema in (DATA_SETS | committed | ({EARLIER: COST_AND_USAGE_1_0} if with_1_0 else {})).items():
            named = f"focus-{name}-{month}"
            write[name], paths = stack.enter_context(data_set_files(directory, named, schema, with_csv=with_csv))
            files += paths
        for stored, document, split in _Splitter(period).documents(issued):
            due = due_of(stored, document["period"]["zone"], calendar)
            rows, details = rows_of(document, split), detail_rows(document, _issued_at(stored), due)
            conformance.cost_and_usage(rows)
            conformance.invoice_detail(details)
            write["cost-and-usage"](rows)
            if with_1_0:
                write[EARLIER](as_1_0(rows))
            write["invoice-detail"](details)
            count += len(rows)
            advance(1)
        periods = period_rows(
            start=period.start, end=period.end, closed_at=period.closed_at, issued_at=[_issued_at(one) for one in issued],
            issuers=sorted({document_of(one)["issuer"]["name"] for one in issued}),
        )  # fmt: skip
        conformance.billing_period(periods)
        write["billing-period"](periods)
        if terms:
            write["contract-commitment"](_commitments(period, issued, terms, conformance))
        conformance.finish(totals)
    return Exported(files, count, len(issued), sum(totals.values(), Decimal("0.00")))


def commitments_of(month: str) -> pa.Table | None:
    """Return the rows of Contract Commitment, which need no usage; None where no document bills a commitment.

    Raises NoPeriodError, NotIssuedError, ConformanceError.
    """
    period, issued = issued_documents(month)
    terms = _terms(period, issued)
    conformance = Conformance(period.window, windows_closed_before(period.close_number))
    return _commitments(period, issued, terms, conformance) if terms else None


def _commitments(period: BillingPeriod, issued: list[Issued], terms: list[Terms], conformance: Conformance) -> pa.Table:
    first, window = document_of(issued[0]), period.window
    rows = commitment_rows(terms, Issue(window, period.zone, first["currency"], first["issuer"]["name"]))
    conformance.contract_commitment(rows)
    return rows


def _terms(period: BillingPeriod, documents: list[Issued]) -> list[Terms]:
    """Return the commitments that documents bill, with their list price at their first instant in the month."""
    lines = chain.from_iterable(document_of(document)["lines"] for document in documents)
    named = {line["policy"] for line in lines if of_commitment(line)}
    if not named:
        return []
    book, card, facts = commitment_book(), rate_card(), commitment_facts()
    found = []
    for one in book.commitments:
        if one.name in named:
            part = one.part_of(period.window)
            price = card.list_price(one.accelerator, part.start if part else one.valid_from)
            found.append(Terms(one, *facts[one.name], price))
    return sorted(found, key=lambda item: item.commitment.name)


def _issued_at(document: Issued) -> Any:
    return document.issued_at  # always set on an issued document


Split = tuple[Issued, Mapping[str, Any], list[SplitLine]]
"""Stored document, its content, and its lines by hour and job."""


class _Splitter:
    """Splitter of the lines of a period's documents by their usage, which is read for some documents at a time."""

    def __init__(self, period: BillingPeriod) -> None:
        self._period = period
        self._months = month_of_close()
        self._windows = {row.month: Interval(row.start, row.end) for row in BillingPeriod.objects.all()}
        self._closes: dict[tuple[int, int | None], UsageOfClose] = {}

    def documents(self, issued: Sequence[Issued]) -> Iterator[Split]:
        """Yield each document with its lines; the usage of one batch of documents is freed before the next is read.

        Raises UnexplainedError.
        """
        invoices = [document for document in issued if isinstance(document, Invoice)]
        for first in range(0, len(invoices), DOCUMENTS_AT_ONCE):
            # batches and not teams one by one: each read passes over all hours of the month
            yield from self._invoices(invoices[first : first + DOCUMENTS_AT_ONCE])
        notes = [document for document in issued if isinstance(document, Note)]
        for first in range(0, len(notes), DOCUMENTS_AT_ONCE):
            yield from self._notes(notes[first : first + DOCUMENTS_AT_ONCE])

    def _invoices(self, invoices: Sequence[Invoice]) -> Iterator[Split]:
        """Split the lines of invoices, after comparing each with its charge."""
        documents = [(invoice, document_of(invoice)) for invoice in invoices]
        usage = self._close(self._period.close_number).of({document["recipient"]["team"] for _, document in documents})
        for invoice, document in documents:
            keys = [line_key(document["recipient"]["team"], line) for line in document["lines"]]
            lines = zip(document["lines"], keys, strict=True)
            yield invoice, document, [self._charged_line(document, line, key, usage) for line, key in lines]

    def _charged_line(
        self, document: Mapping[str, Any], line: Mapping[str, Any], key: LineKey, usage: HourlyUsage
    ) -> SplitLine:
        charged, ratios = self._charges
        if reduce(EXACT.add, usage.places.get(key, {}).values(), Decimal(0)) != charged.get(key.digest()):
            raise _unexplained(usage, Message(
                "line %(position)s of %(number)s no longer follows from its usage; run `manage.py period_verify %(month)s`",
                position=line["position"], number=document["number"], month=document["period"]["month"],
            ))
        return self._split(line, key, usage, ratios.get(key.digest()))

    def _notes(self, notes: Sequence[Note]) -> Iterator[Split]:
        """Split the lines of notes, by the usage of the close that charged them first, with the changes until then."""
        rows = {note.pk: [(self._key(note, row), row) for row in note.lines.order_by("position")] for note in notes}
        wanted: dict[tuple[int, int], set[LineKey]] = defaultdict(set)
        for key, row in chain.from_iterable(rows.values()):
            wanted[row.close_seq, row.change_seq].add(key)
        usage = {of: self._close(*of).of({key.team for key in keys}, only=keys) for of, keys in wanted.items()}
        for note in notes:
            document, lines = document_of(note), []
            for (key, row), line in zip(rows[note.pk], document["lines"], strict=True):
                found = usage[row.close_seq, row.change_seq]
                if not found.places.get(key):
                    raise _unexplained(found, Message(
                        "line %(position)s of %(number)s no longer follows from any usage",
                        position=row.position, number=note.number,
                    ))
                lines.append(self._split(line, key, found))
            yield note, document, lines

    def _split(
        self, line: Mapping[str, Any], key: LineKey, usage: HourlyUsage, ratio: Decimal | None = None
    ) -> SplitLine:
        line = stated(line)
        shares = shares_of(line, usage.places[key], self._windows[line["charge_period"]])
        return SplitLine(line, shares, usage.evidence.get(key, {}), usage.list_prices.get(key), ratio)

    @cached_property
    def _charges(self) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
        """Return the charged quantity of each line, and the ratios of allocated lines."""
        rows = Charge.objects.filter(close_seq=self._period.close_number, platform=False)
        return dict(rows.values_list("line_key", "usage_quantity")), _ratios(rows.filter(kind__in=ALLOCATED))

    def _close(self, close_seq: int, change_seq: int | None = None) -> UsageOfClose:
        name = (close_seq, change_seq)
        if name not in self._closes:
            mine = close_seq == self._period.close_number
            period = self._period if mine else BillingPeriod.objects.get(close_seq=close_seq)
            self._closes[name] = UsageOfClose(period, change_seq=change_seq)
        return self._closes[name]

    def _key(self, note: Note, row: NoteLine) -> LineKey:
        return row_key(row, note.team.code, correction=row.charge_period != self._months[row.close_seq])


def _ratios(rows: QuerySet[Charge]) -> dict[str, Decimal]:
    """Return the ratio of each part of idle time or shared cost, by line; those of one whole add up to 1."""
    wholes: dict[tuple[str, ...], list[tuple[str, Decimal]]] = defaultdict(list)
    for row in rows.order_by("team"):
        wholes[row.kind, row.policy, row.cluster, row.sku].append((row.line_key, row.usage_quantity))
    found: dict[str, Decimal] = {}
    for parts in wholes.values():
        ratios = split_amount(Decimal(1), [amount for _, amount in parts], ALLOCATED_PLACES)
        found |= dict(zip([name for name, _ in parts], ratios, strict=True))
    return found


def _unexplained(usage: HourlyUsage, message: Message) -> UnexplainedError:
    """Return the error, with the teams of that usage that cannot be rated."""
    return UnexplainedError(Message.joined([message, *(
        Message("team %(team)s cannot be rated: %(problem)s", team=team, problem=problem)
        for team, problem in sorted(usage.faults.items())
    )]))


def line_key(team: str, line: Mapping[str, Any]) -> LineKey:
    return LineKey(
        team=team, platform=False, correction=line["charge_class"] is not None, charge_period=line["charge_period"],
        kind=line["kind"], cluster=line["cluster"] or "", namespace=line["namespace"] or "",
        consumer=line["consumer"] or "", accelerator=line["accelerator"] or "", sku=line["sku"],
        token_class=priced_class(line["token_class"] or "", line.get("context", "")), unit=line["unit"],
        price_version=line["price_version"],
        policy=line["policy"] or "", reason=line["reason"] or "",
    )  # fmt: skip
