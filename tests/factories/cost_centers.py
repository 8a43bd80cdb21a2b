"""A team whose cost centre has a date, and what its journals post."""

from decimal import Decimal
from pathlib import Path
from typing import Any

from billing.exports.journal import Chart
from billing.exports.services.journal import journal_export
from tests.factories import SET_UP, allocation_record

MOVES = [{"value": "CC-210", "valid_from": "2026-01-01"}, {"value": "CC-211", "valid_from": "2026-10-11"}]


def teams(cost_center: Any = MOVES) -> list[dict[str, Any]]:
    first, *others = SET_UP["teams"]
    return [{**first, "cost_center": cost_center}, *others]


def used(number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    return allocation_record(number, started_at=start, ended_at=end, observed_until=end, **changed)


def posted(directory: Path, month: str = "2026-10", chart: Chart | None = None) -> list[tuple[str, str, Decimal]]:
    """Document, cost centre and net amount of every posting to a consumer, credits negative."""
    exported = journal_export(month=month, path=directory / "journal.csv", chart=chart or Chart())
    return [
        (journal.invoice_number, entry.cost_center, (entry.debit or Decimal(0)) - (entry.credit or Decimal(0)))
        for journal in exported.journals for entry in journal.entries if entry.account == Chart().consumer_account
    ]  # fmt: skip
