"""What an ingest answers: counts, and each record that was not taken with the reason."""

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
    """What a report means for what is already known."""

    NEW = "new"
    UPDATE = "update"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports to which endpoint (`door`, as its column is called). `source` limits a token to one gateway or cluster;
    `future_limit_s` is how far ahead of the clock an instant may lie, None where a person takes a record in knowingly.
    `estimates_from`: sources whose gateway may guess what was used (`*`: all), None where a person decides.
    """

    name: str
    door: str
    source: str = ""
    future_limit_s: int | None = None
    estimates_from: frozenset[str] | None = None


def may_not_report(reporter: Reporter, field: Literal["cluster", "source"], value: str) -> Message | None:
    """Why the reporter may report nothing of this cluster or source; None if it may."""
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
    """Why the usage of this record, which its gateway guessed, is not billed unseen; None where it was counted or may be."""
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
    """The latest instant of which the reporter may report, None for any."""
    return None if reporter.future_limit_s is None else now + timedelta(seconds=reporter.future_limit_s)


Measured = UncheckedTokenUsage | GpuAllocation | NodeCapacity | EfficiencySample | EngineReading


def last_instant(record: Measured) -> tuple[str, datetime]:
    """The field of a record that holds its latest instant, and that instant; of capacity, which may be planned, `from`."""
    if isinstance(record, GpuAllocation):
        ends = {"ended_at": record.ended_at, "observed_until": record.observed_until}
        return max(((field, at) for field, at in ends.items() if at is not None), key=itemgetter(1))
    if isinstance(record, NodeCapacity):
        return "from", record.start
    return ("end", record.end) if isinstance(record, EfficiencySample) else ("time", record.time)


def in_the_future(record: Measured, now: datetime) -> Message:
    """What is answered to a record that lies after the latest instant."""
    field, instant = last_instant(record)
    return Message(
        "%(field)s %(time)s lies in the future; the clock of the ledger says %(now)s",
        field=field, time=instant.isoformat(), now=now.isoformat(),
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that went to quarantine, by its place in the batch.

    `same_as`: what makes two of them the same, where that is not the record itself: an agent reports a running pod again
    and again, each time seen a little longer.
    """

    index: int
    key: str
    error: Message
    reason: str
    raw: bytes
    same_as: bytes = b""


@dataclass(slots=True)
class IngestOutcome:
    """Every record of a batch is counted in exactly one of accepted, duplicates, conflicts or rejected."""

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
        """The body of the contract. Conflicts are counted and, like rejected records, named."""
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
    """Note that the calling transaction stored so many new rows of a kind."""
    if rows:
        cursor.execute("INSERT INTO usage_acceptedrows (kind, rows) VALUES (%s, %s)", [kind.value, rows])
