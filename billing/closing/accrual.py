"""PURE: accrual of an open month for a book close before the bills: balanced estimated entries and their reversals.

Each team's journal is made as that of its invoice would be, from the preview; so is that of each note the open month has
issued. A reversal with ids of its own follows each, on the first day of the next month. Source: FINOPS_PRACTICE section 4.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from billing.exports.journal import Chart, Entry, Journal, journal_of
from billing.runtime.canonical_json import canonical_json, document_hash
from pricing.number_text import amount_text

SCHEMA = "suanpan/accrual/1"
COLUMNS = (
    "journal_id", "line_id", "reverses", "estimate", "company_code", "posting_date", "period", "account", "cost_center",
    "internal_order", "debit", "credit", "currency", "text", "as_of", "sha256", "data_through",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccrualFacts:
    """Month of an accrual, and the state of knowledge.

    `left_out`: usage that the estimate cannot contain, by kind. `before`: the revision that this one replaces.
    `data_through`: instant up to which the usage in it is complete; None if none was reported.
    """

    name: str
    month: str
    as_of: datetime
    reversal_date: date
    left_out: Sequence[Mapping[str, Any]]
    before: Mapping[str, Any] | None = None
    data_through: datetime | None = None


def accrual_of(documents: Iterable[Mapping[str, Any]], chart: Chart, facts: AccrualFacts) -> dict[str, Any]:
    """Build the accrual of previews and notes (each with team, totals and sub-totals of kinds).

    Raises JournalError if a team has no cost centre.
    """
    journals: list[dict[str, Any]] = []
    for document in documents:
        journal = journal_of(document, chart)
        entries = [_entry(entry, journal, "") for entry in journal.entries]
        back = replace(journal, journal_id=f"{journal.journal_id}-R", posting_date=facts.reversal_date)
        reversed_entries = [_entry(_turned(entry), back, entry.line_id) for entry in journal.entries]
        if entries:
            journals.append({
                "team": document["recipient"]["team"], "amount": document["total"], "entries": entries,
                "reversal": reversed_entries,
            })  # fmt: skip
    return {
        "schema": SCHEMA, "name": facts.name, "month": facts.month, "estimate": True,
        "as_of": facts.as_of.isoformat(),
        "data_through": None if facts.data_through is None else facts.data_through.isoformat(),
        "left_out": [dict(item) for item in facts.left_out], "journals": journals,
        "withdrawn": [] if facts.before is None else _withdrawn(facts.before),
    }  # fmt: skip


def _withdrawn(before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return entries that take back the previous revision's, each on its own day under an id of its own."""
    return [
        {**entry, "journal_id": f"{entry['journal_id']}-W", "line_id": f"{entry['line_id']}-W",
         "reverses": entry["line_id"], "debit": entry["credit"], "credit": entry["debit"],
         "text": f"Withdrawn: {entry['text']}"}
        for entry in _posted(before)
    ]  # fmt: skip


def _posted(accrual: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of an accrual, then their reversals."""
    return [entry for part in ("entries", "reversal") for journal in accrual["journals"] for entry in journal[part]]


def _turned(entry: Entry) -> Entry:
    """Return the posting with its sides exchanged, under an id of its own."""
    return replace(entry, line_id=f"{entry.line_id}-R", debit=entry.credit, credit=entry.debit)


def _entry(entry: Entry, journal: Journal, reverses: str) -> dict[str, Any]:
    return {
        "journal_id": journal.journal_id, "line_id": entry.line_id, "reverses": reverses or None,
        "company_code": journal.company_code, "posting_date": journal.posting_date.isoformat(),
        "period": journal.posting_date.strftime("%Y-%m") if reverses else journal.period, "account": entry.account,
        "cost_center": entry.cost_center, "internal_order": entry.internal_order,
        "debit": None if entry.debit is None else amount_text(entry.debit),
        "credit": None if entry.credit is None else amount_text(entry.credit), "currency": journal.currency,
        "text": f"{'Reversal of estimate' if reverses else 'Estimate'} {entry.text}",
    }  # fmt: skip


def accrual_csv(accrual: Mapping[str, Any]) -> bytes:
    """Return the file that a ledger imports, UTF-8, CRLF: every entry, then every reversal, each flagged as an estimate.

    Entries that take back an earlier revision come last.
    """
    digest = document_hash(canonical_json(dict(accrual)))
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for entry in [*_posted(accrual), *accrual["withdrawn"]]:
        row = {name: "" if value is None else str(value) for name, value in entry.items()}
        through = accrual.get("data_through") or ""  # missing in documents of older releases
        writer.writerow(
            row | {"estimate": "yes", "as_of": accrual["as_of"], "sha256": digest, "data_through": through}
        )
    return sheet.getvalue().encode()


