"""Report of token records, checked against its reporter and the clock, ready to be written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from billing.usage.services.outcome import (
    Refusal,
    Reporter,
    in_the_future,
    latest_instant,
    may_not_estimate,
    may_not_report,
)
from billing.usage.store.columns import ReportedColumns, reported_columns
from billing.usage.store.dimensions import remembered_dimensions
from metering.messages import Message
from metering.names import visible
from metering.raw_json import readable_members
from metering.record_checks import LATEST
from metering.records import PAID_BY_CALL, Rejected, TokenUsage

COLUMNS_FROM = 64
_times = attrgetter("time")
_sources = attrgetter("source")
_attributes = attrgetter("attributes")


@dataclass(slots=True, eq=False)
class TokenBatch:
    """Records of one report, each with its place in the body.

    `raw_at` returns the bytes at a place; it is called for refused records only. `columns`: of a large batch, computed in
    advance while other batches are written. `tags_filtered`: True once the records have only allowed tags.
    """

    reporter: Reporter
    raw_at: Callable[[int], bytes]
    records: Sequence[TokenUsage]
    places: Sequence[int]
    refusals: list[Refusal]
    columns: ReportedColumns | None = None
    tags_filtered: bool = False


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
    """Return a batch without records that this reporter may not report or that are in the future; those are refused.

    `places`: of the records in the body; None if `records` is the whole body. `columns`: of the records, if already computed
    for their check.
    """
    where = range(len(records)) if places is None else places
    batch = TokenBatch(reporter, raw_at, records, where, [_invalid(item) for item in rejected], columns)
    latest = latest_instant(reporter, now) or LATEST
    # checks of the whole batch: only a suspicious one is checked record by record
    is_foreign = reporter.source != "" and not {reporter.source}.issuperset(map(_sources, records))
    remarked = reporter.estimates_from is not None and any(map(_attributes, records))
    if is_foreign or remarked or not all(map(latest.__ge__, map(_times, records))):
        _sort_out(batch, latest, now)
    if batch.columns is None and len(batch.records) >= COLUMNS_FROM:
        batch.columns = reported_columns(batch.records, remembered_dimensions())
    return batch


def _sort_out(batch: TokenBatch, latest: datetime, now: datetime) -> None:
    kept = list[tuple[TokenUsage, int]]()
    for record, place in zip(batch.records, batch.places, strict=True):
        key = f"{record.source}/{record.id}"
        if error := may_not_report(batch.reporter, "source", record.source):
            batch.refusals.append(Refusal(place, key, error, "invalid", batch.raw_at(place)))
        elif record.time > latest:
            batch.refusals.append(Refusal(place, key, in_the_future(record, now), "future", batch.raw_at(place)))
        elif error := may_not_estimate(batch.reporter, record):
            batch.refusals.append(Refusal(place, key, error, "invalid", batch.raw_at(place)))
        else:
            kept.append((record, place))
    batch.records, batch.places = [record for record, _ in kept], [place for _, place in kept]
    batch.columns = None


def key_taken(record: TokenUsage) -> Message:
    """Return the refusal of a record whose key is stored with other content."""
    return Message(
        "id %(id)s of source %(source)s was reported before with other content; the first one stays",
        id=repr(record.id), source=repr(record.source),
    )


def _invalid(item: Rejected) -> Refusal:
    members = dict(readable_members(item.raw))
    key = visible(f"{members['source']}/{members['id']}") if {"source", "id"} <= members.keys() else ""
    reason = "paid_by_call" if str(item.error).startswith(PAID_BY_CALL) else "invalid"
    return Refusal(item.index, key[:500], item.error.message, reason, item.raw)

