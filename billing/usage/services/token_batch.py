"""One report of token records, checked against its reporter and the clock, ready to be written."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from billing.usage.services.outcome import Refusal, Reporter
from billing.usage.services.token_rows import Cell, cell
from metering.records import Rejected, TokenUsage, microseconds

NEVER = 2**63


@dataclass(slots=True)
class TokenBatch:
    """What one reporter brought: `raw_at` gives the bytes of a record by its place, asked only for what is refused."""

    reporter: Reporter
    raw_at: Callable[[int], bytes]
    cells: list[Cell] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def token_batch(
    *,
    records: Iterable[tuple[int, TokenUsage]],
    rejected: Iterable[Rejected],
    raw_at: Callable[[int], bytes],
    reporter: Reporter,
    now: datetime,
) -> TokenBatch:
    """Sort out what this reporter may not report, and what lies in the future."""
    batch = TokenBatch(reporter, raw_at, refusals=[_invalid(item) for item in rejected])
    bound = reporter.source
    latest = NEVER
    if reporter.future_limit_s is not None:
        latest = microseconds(now + timedelta(seconds=reporter.future_limit_s))
    add = batch.cells.append
    for index, record in records:
        at = microseconds(record.time)
        if at > latest or (bound and record.source != bound):
            batch.refusals.append(_inadmissible(index, record, raw_at(index), reporter, now))
        else:
            add(cell(index, record, at))
    return batch


def repeated(entry: Cell, raw: bytes) -> Refusal:
    """The refusal of a record whose key is taken by other content."""
    record = entry.record
    error = f"id {record.id!r} of source {record.source!r} was reported before with other content; the first one stays"
    return Refusal(entry.index, f"{record.source}/{record.id}", error, "conflict", raw)


def _inadmissible(index: int, record: TokenUsage, raw: bytes, reporter: Reporter, now: datetime) -> Refusal:
    key = f"{record.source}/{record.id}"
    if reporter.source and record.source != reporter.source:
        error = f"source {record.source!r}: this token may report for {reporter.source!r} only"
        return Refusal(index, key, error, "invalid", raw)
    error = f"time {record.time.isoformat()} lies in the future; the clock of the ledger says {now.isoformat()}"
    return Refusal(index, key, error, "future", raw)


def _invalid(item: Rejected) -> Refusal:
    try:
        fields: Any = msgspec.json.decode(item.raw)
        key = f"{fields['source']}/{fields['id']}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
        key = ""
    return Refusal(item.index, key[:500], str(item.error), "invalid", item.raw)

