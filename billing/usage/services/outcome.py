"""Outcome of an ingest: counts, and each refused record with the reason."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from operator import itemgetter
from typing import Any, Literal

from billing.usage.models import AcceptedRows
from metering.messages import Message
from metering.records import (
    GATEWAY_ESTIMATE,
    EfficiencySample,
    EngineReading,
    GpuAllocation,
    NodeCapacity,
    UncheckedTokenUsage,
)


class Meaning(Enum):
    """Effect of a report on stored usage."""

    NEW = "new"
    UPDATE = "update"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reporter and the endpoint of its report (`door`, as its column is called).

    `source` limits a token to one gateway or cluster. `future_limit_s`: seconds that an instant may lie ahead of the clock,
    None if a person accepts a record knowingly. `estimates_from`: sources whose gateway may estimate usage (`*`: all), None
    if a person decides.
    """

    name: str
    door: str
    source: str = ""
    future_limit_s: int | None = None
    estimates_from: frozenset[str] | None = None


def may_not_report(reporter: Reporter, field: Literal["cluster", "source"], value: str) -> Message | None:
    """Return the refusal if the reporter may not report this cluster or source, else None."""
    if reporter.source in ("", value):
        return None
    if field == "cluster":
        return Message(
            "cluster %(cluster)s: this token may report for %(own)s only", cluster=repr(value), own=repr(reporter.source)
        )
    return Message(
        "source %(source)s: this token may report for %(own)s only", source=repr(value), own=repr(reporter.source)
    )


def may_not_estimate(reporter: Reporter, record: UncheckedTokenUsage) -> Message | None:
    """Return the refusal of a record with usage estimated by its gateway; None if it was counted or may be estimated."""
    allowed = reporter.estimates_from
    if allowed is None or "*" in allowed or record.source in allowed:
        return None
    if not record.attributes or record.attributes.get("usage_source") != GATEWAY_ESTIMATE:
        return None
    return Message(
        "gateway_estimate: the provider of model %(model)s counted nothing, and source %(source)s may not guess",
        model=record.model, source=repr(record.source),
    )


def latest_instant(reporter: Reporter, now: datetime) -> datetime | None:
    """Return the latest instant that the reporter may report, None for any."""
    return None if reporter.future_limit_s is None else now + timedelta(seconds=reporter.future_limit_s)


Measured = UncheckedTokenUsage | GpuAllocation | NodeCapacity | EfficiencySample | EngineReading


def last_instant(record: Measured) -> tuple[str, datetime]:
    """Return the field of a record with its latest instant, and that instant; of capacity, which may be planned, `from`."""
    if isinstance(record, GpuAllocation):
        ends = {"ended_at": record.ended_at, "observed_until": record.observed_until}
        return max(((field, at) for field, at in ends.items() if at is not None), key=itemgetter(1))
    if isinstance(record, NodeCapacity):
        return "from", record.start
    return ("end", record.end) if isinstance(record, EfficiencySample) else ("time", record.time)


def in_the_future(record: Measured, now: datetime) -> Message:
    """Return the refusal of a record after the latest allowed instant."""
    field, instant = last_instant(record)
    return Message(
        "%(field)s %(time)s lies in the future; the clock of the ledger says %(now)s",
        field=field, time=instant.isoformat(), now=now.isoformat(),
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Record that went to quarantine, by its index in the batch.

    `same_as`: identity under which repeated refusals count as one, if not the raw record: an agent reports a running pod
    again and again, each time with a later observation.
    """

    index: int
    key: str
    error: Message
    reason: str
    raw: bytes
    same_as: bytes = b""


@dataclass(slots=True)
class IngestOutcome:
    """Counts of a batch: each record is in exactly one of accepted, duplicates, conflicts or rejected."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    refusals: list[Refusal] = field(default_factory=list)

    def count(self, meaning: Meaning) -> None:
        if meaning is Meaning.DUPLICATE:
            self.duplicates += 1
        elif meaning is Meaning.CONFLICT:
            self.conflicts += 1
        else:
            self.accepted += 1

    def answer(self) -> dict[str, object]:
        """Return the response body of the contract. Conflicts are only counted; rejected records are listed."""
        return {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "rejected": [
                {"index": refusal.index, "key": refusal.key, "error": str(refusal.error)}
                for refusal in sorted(self.refusals, key=lambda refusal: refusal.index)
                if refusal.reason != "conflict"
            ],
        }


def accepted_note(cursor: Any, kind: AcceptedRows.Kind, rows: int) -> None:
    """Store the number of new rows of a kind inserted by the calling transaction."""
    if rows:
        cursor.execute("INSERT INTO usage_acceptedrows (kind, rows) VALUES (%s, %s)", [kind.value, rows])
