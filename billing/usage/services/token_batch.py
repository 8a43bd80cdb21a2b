"""One report of token records, checked against its reporter and the clock, ready to be written."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from operator import attrgetter

from billing.usage.services.outcome import Refusal, Reporter
from billing.usage.services.token_columns import ReportedColumns, reported_columns
from billing.usage.services.token_dimensions import remembered_dimensions
from metering.messages import Message
from metering.names import visible
from metering.raw_json import readable_members
from metering.record_checks import LATEST
from metering.records import (
    Rejected,
    TokenUsage,
)

COLUMNS_FROM = 64
FEW = 8
"""Records that are looked at sooner one by one than all of them for each question."""
_nothing = frozenset({None})
_number = attrgetter("sequence")
_times = attrgetter("time")
_sources = attrgetter("source")


@dataclass(slots=True)
class TokenBatch:
    """What one reporter brought: records, each with its place in the body; `raw_at` gives the bytes of what stood in a
    place, and is asked only for what is refused. `is_numbered`: whether a source gave any of them a number; `columns`:
    of a large batch, so that they are made while others are written.
    """

    reporter: Reporter
    raw_at: Callable[[int], bytes]
    records: Sequence[TokenUsage] = ()
    places: Sequence[int] = ()
    refusals: list[Refusal] = field(default_factory=list)
    is_numbered: bool = False
    columns: ReportedColumns | None = None

    def prepare(self, columns: ReportedColumns | None) -> None:
        """What its writer will ask of the records; `columns` are those of all records that were reported."""
        self.is_numbered = not _nothing.issuperset(map(_number, self.records))
        if columns is not None and len(columns.records) == len(self.records):
            self.columns = columns
        elif len(self.records) >= COLUMNS_FROM:
            self.columns = reported_columns(self.records, remembered_dimensions())


def token_batch(
    *,
    records: Sequence[TokenUsage],
    places: Sequence[int] | None = None,
    rejected: Sequence[Rejected] = (),
    raw_at: Callable[[int], bytes],
    reporter: Reporter,
    now: datetime,
    columns: ReportedColumns | None = None,
) -> TokenBatch:
    """Sort out what this reporter may not report, and what lies in the future. Without `places` all of the body is here.

    `columns`: of the records, where they were made to look whether all is well.
    """
    where = range(len(records)) if places is None else places
    latest = LATEST if reporter.future_limit_s is None else now + _seconds(reporter.future_limit_s)
    if len(records) < FEW and not rejected and _are_plain(records, reporter.source, latest):
        return TokenBatch(reporter, raw_at, records, where)
    batch = TokenBatch(reporter, raw_at, records, where, [_invalid(item) for item in rejected])
    _sort_out(batch, latest, now)
    batch.prepare(columns)
    return batch


_seconds = lru_cache(partial(timedelta, 0))


def _are_plain(records: Iterable[TokenUsage], bound: str, latest: datetime) -> bool:
    """Whether there is nothing to sort out and nothing to prepare."""
    for record in records:
        if record.time > latest or record.sequence is not None or (bound and record.source != bound):
            return False
    return True


def _sort_out(batch: TokenBatch, latest: datetime, now: datetime) -> None:
    records, where, reporter = batch.records, batch.places, batch.reporter
    bound = reporter.source
    if all(map(latest.__ge__, map(_times, records))) and (not bound or set(map(_sources, records)) <= {bound}):
        return
    admitted = [record.time <= latest and bound in ("", record.source) for record in records]
    batch.records = [record for record, good in zip(records, admitted, strict=True) if good]
    batch.places = [place for place, good in zip(where, admitted, strict=True) if good]
    for place, record, good in zip(where, records, admitted, strict=True):
        if not good:
            batch.refusals.append(_inadmissible(place, record, batch.raw_at(place), reporter, now))


def repeated(record: TokenUsage, place: int, raw: bytes) -> Refusal:
    """The refusal of a record whose key is taken by other content."""
    return Refusal(place, f"{record.source}/{record.id}", key_taken(record), "conflict", raw)


def key_taken(record: TokenUsage) -> Message:
    """What is said of a record whose key is taken by other content."""
    return Message(
        "id %(id)s of source %(source)s was reported before with other content; the first one stays",
        id=repr(record.id), source=repr(record.source),
    )


def _inadmissible(index: int, record: TokenUsage, raw: bytes, reporter: Reporter, now: datetime) -> Refusal:
    key = f"{record.source}/{record.id}"
    if reporter.source and record.source != reporter.source:
        error = Message(
            "source %(source)s: this token may report for %(own)s only",
            source=repr(record.source), own=repr(reporter.source),
        )
        return Refusal(index, key, error, "invalid", raw)
    error = Message(
        "time %(time)s lies in the future; the clock of the ledger says %(now)s",
        time=record.time.isoformat(), now=now.isoformat(),
    )
    return Refusal(index, key, error, "future", raw)


def _invalid(item: Rejected) -> Refusal:
    told = dict(readable_members(item.raw))
    key = visible(f"{told['source']}/{told['id']}") if {"source", "id"} <= told.keys() else ""
    return Refusal(item.index, key[:500], item.error.message, "invalid", item.raw)

