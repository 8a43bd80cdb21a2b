"""PURE: balanced general-ledger journals of issued documents, and the file that a ledger imports.

An internal recharge moves cost and creates no revenue: the consumer's cost centre is debited, the provider's credited
with the same amount, per kind of line. A negative sub-total swaps the sides, so that no entry is ever negative.
Ids follow from the invoice number: a file that is imported twice has the same journals again.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

from billing.corrections.dispute_holdback import HeldPart
from billing.invoices.documents.delimited import BYTE_ORDER_MARK, harmless
from metering.intervals import day_of
from metering.messages import Message, UserError
from pricing.number_text import amount_text, amounts_text

COLUMNS = (
    "journal_id", "line_id", "company_code", "posting_date", "period", "account", "cost_center", "internal_order",
    "debit", "credit", "currency", "text", "invoice_number", "batch_hash",
)  # fmt: skip
KIND_TEXT = {
    "gpu": "GPU hours", "commitment": "commitments", "tokens": "tokens",
    "efficiency": "efficiency adjustments",
    "interruption": "interruptions carried by the platform",
    "idle": "allocated idle capacity", "shared": "allocated shared cost",
    "credit": "credits",
}  # fmt: skip
ZERO = Decimal("0.00")


class JournalError(UserError, ValueError):
    """Documents that give no balanced journal."""

    code = "journal"


@dataclass(frozen=True, slots=True)
class Chart:
    """Accounts and cost centres of recharges. Empty fields come from the document: its issuer, its cost centre.

    `cost_centers` and `internal_orders` are by team; `posting_date` defaults to the last local day of the period.
    """

    consumer_account: str = "internal AI compute"
    provider_account: str = "internal AI compute recovered"
    provider_cost_center: str = ""
    company_code: str = ""
    posting_date: date | None = None
    cost_centers: Mapping[str, str] = field(default_factory=dict)
    internal_orders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KindAmount:
    """Amount of a cost centre for a kind of line of a document."""

    kind: str
    cost_center: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Entry:
    """Side of a posting; exactly one of `debit` and `credit` is set, and it is positive."""

    line_id: str
    account: str
    cost_center: str
    internal_order: str
    debit: Decimal | None
    credit: Decimal | None
    text: str


@dataclass(frozen=True, slots=True)
class Journal:
    journal_id: str
    company_code: str
    posting_date: date
    period: str
    currency: str
    invoice_number: str
    entries: Sequence[Entry]

    @property
    def debit(self) -> Decimal:
        return sum((entry.debit for entry in self.entries if entry.debit is not None), ZERO)

    @property
    def credit(self) -> Decimal:
        return sum((entry.credit for entry in self.entries if entry.credit is not None), ZERO)

    def net_of(self, account: str) -> Decimal:
        ours = [entry for entry in self.entries if entry.account == account]
        return sum(((entry.debit or ZERO) - (entry.credit or ZERO) for entry in ours), ZERO)


def journals_of(
    document: Mapping[str, Any], chart: Chart, held: Sequence[HeldPart] = (), centers: Sequence[KindAmount] | None = None
) -> list[Journal]:
    """Return the journal of one document as invoiced, without the parts that earlier releases held back.

    Returns [] where all of it was held back. centers: as in `journal_of`.  Raises JournalError.
    """
    if not held:
        return [journal_of(document, chart, centers=centers)]
    rest = {item["kind"]: Decimal(item["amount"]) for item in document["subtotals"]}
    for part in held:
        for kind, amount in part.amounts.items():
            rest[kind] = rest.get(kind, ZERO) - amount
    journal = journal_of(_part(document, rest), chart, words="without what is disputed")
    return [journal] if journal.entries else []


def held_journal(
    document: Mapping[str, Any], chart: Chart, part: HeldPart, posted_with: Mapping[str, str] | None = None
) -> Journal:
    """Return the journal of a part that an earlier release held back: `GL-NUMBER-Hk`.

    posted_with: `month`, `end` and `zone` of the posting period, where that is not the document's own.
    Raises JournalError.
    """
    return journal_of(_part(document, part.amounts), chart, f"-H{part.sequence}", f"dispute {part.dispute}", posted_with)


def _part(document: Mapping[str, Any], amounts: Mapping[str, Decimal]) -> dict[str, Any]:
    subtotals = [{"kind": kind, "amount": amount_text(amount)} for kind, amount in amounts.items()]
    return {**document, "subtotals": subtotals, "total": amounts_text(amounts.values())}


def journal_of(
    document: Mapping[str, Any], chart: Chart, suffix: str = "", words: str = "",
    posted_with: Mapping[str, str] | None = None, centers: Sequence[KindAmount] | None = None,
) -> Journal:  # fmt: skip
    """Return the journal of one issued document (`suanpan/invoice/1`, `suanpan/note/1`), or of a part named by `words`.

    posted_with: the posting period; by default the document's. centers: the amounts of each cost centre and kind, where the
    document's usage had several and the chart names none.

    Raises JournalError where the document names no cost centre, or its sub-totals are not its total.
    """
    number, team = document["number"], document["recipient"]["team"]
    consumer = chart.cost_centers.get(team) or document["recipient"]["cost_center"]
    parts = [KindAmount(item["kind"], consumer, Decimal(item["amount"])) for item in document["subtotals"]]
    if centers is not None and team not in chart.cost_centers:
        parts = list(centers)
    if not all(part.cost_center for part in parts):
        raise JournalError(Message(
            "invoice %(number)s: team %(team)s has no cost centre; name it under `cost_centers` of the chart",
            number=number, team=team,
        ))
    period = posted_with or document["period"]
    journal = Journal(
        journal_id=f"GL-{number}{suffix}", company_code=chart.company_code or document["issuer"]["name"],
        posting_date=chart.posting_date or _last_day(period), period=period["month"],
        currency=document["currency"], invoice_number=number,
        entries=_entries(document, parts, chart, f"GL-{number}{suffix}", words),
    )  # fmt: skip
    _check(journal, Decimal(document["total"]), chart)
    return journal


def _last_day(period: Mapping[str, str]) -> date:
    """Return the last day of a period in its zone; the next day may begin later than at midnight."""
    return day_of(datetime.fromisoformat(period["end"]) - timedelta(microseconds=1), period["zone"])


def _entries(
    document: Mapping[str, Any], parts: Sequence[KindAmount], chart: Chart, journal_id: str, words: str
) -> list[Entry]:
    entries: list[Entry] = []
    team, provider = document["recipient"]["team"], chart.provider_cost_center or document["issuer"]["name"]
    for part in parts:
        if not part.amount:
            continue
        text = f"{document['number']} {team} {document['period']['month']}: {KIND_TEXT.get(part.kind, part.kind)}"
        text += f", {words}" if words else ""
        sides = (
            (chart.consumer_account, part.cost_center, chart.internal_orders.get(team, "")),
            (chart.provider_account, provider, ""),
        )
        # a negative part swaps the sides, so that no entry is negative
        for (account, cost_center, order), debited in zip(sides, (part.amount > 0, part.amount < 0), strict=True):
            debit, credit = (abs(part.amount), None) if debited else (None, abs(part.amount))
            line_id = f"{journal_id}-{len(entries) + 1:03d}"
            entries.append(Entry(line_id, account, cost_center, order, debit, credit, text))
    return entries


def _check(journal: Journal, total: Decimal, chart: Chart) -> None:
    if journal.debit != journal.credit:
        raise JournalError(Message(
            "journal %(journal_id)s: debit %(debit)s is not credit %(credit)s",
            journal_id=journal.journal_id, debit=journal.debit, credit=journal.credit,
        ))
    # with one account for both sides every journal nets to 0, so there is nothing to compare
    if chart.consumer_account != chart.provider_account and journal.net_of(chart.consumer_account) != total:
        raise JournalError(Message(
            "invoice %(invoice_number)s: its sub-totals are not its total %(total)s",
            invoice_number=journal.invoice_number, total=total,
        ))


def journal_csv(journals: Iterable[Journal], *, spreadsheet: bool = False) -> bytes:
    """Return the file: one row per entry, in the order given, UTF-8, CRLF, texts unchanged.

    Every row has the hash of all rows, so that a ledger detects a batch that was edited or truncated.
    spreadsheet: for people instead of a ledger: with a byte order mark, and an apostrophe before text that a spreadsheet
    would run as a formula. The hash is that of the ledger's file.
    """
    rows, batch = _batch(journals)
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([*(map(harmless, row) if spreadsheet else row), batch] for row in rows)
    return ((BYTE_ORDER_MARK if spreadsheet else "") + sheet.getvalue()).encode()


def batch_hash(journals: Iterable[Journal], *, guarded: bool = False) -> str:
    """Return the hash of all rows, which every row of the file has: SHA-256, hexadecimal.

    guarded: with apostrophes before formulas, as releases up to 1.0 wrote and hashed rows.
    """
    return _batch(journals, harmless if guarded else str)[1]


def _batch(journals: Iterable[Journal], cell: Callable[[str], str] = str) -> tuple[list[list[str]], str]:
    rows = [[cell(text) for text in row] for journal in journals for row in _rows(journal)]
    return rows, sha256(json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def _rows(journal: Journal) -> list[list[str]]:
    """Return the cells of COLUMNS without the last; amounts are never negative."""
    return [
        [
            journal.journal_id, entry.line_id, journal.company_code, journal.posting_date.isoformat(), journal.period,
            entry.account, entry.cost_center, entry.internal_order, amount_text(entry.debit) if entry.debit else "",
            amount_text(entry.credit) if entry.credit else "", journal.currency, entry.text, journal.invoice_number,
        ]
        for entry in journal.entries
    ]  # fmt: skip
