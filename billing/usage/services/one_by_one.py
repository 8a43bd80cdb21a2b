"""Ingest of rare records: one by one, in the order of their keys, so that two reporters never deadlock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import connection, transaction

from billing.usage.epochs import ingest_lock_shared
from billing.usage.models import AcceptedRows
from billing.usage.services.outcome import (
    IngestOutcome,
    Meaning,
    Refusal,
    Reporter,
    accepted_note,
    in_the_future,
    last_instant,
    latest_instant,
    may_not_report,
)
from billing.usage.services.quarantine import quarantine_add
from metering.messages import Message
from metering.records import EfficiencySample, EngineReading, NodeCapacity, Rejected

R = TypeVar("R", NodeCapacity, EfficiencySample, EngineReading)
Problem = tuple[Message, str]
"""Message of a problem, and the reason of its quarantine."""


@dataclass(frozen=True)
class OneByOne(Generic[R]):
    """Ingest of a batch of (index, record, raw bytes) of one kind.

    `store`: writes a record under an epoch, waiting for concurrent reports of the same key. `taken`: the refusal of a record
    whose key is stored with other content. `refuse`: the problem of a record that may not be stored. `kind`: kind under
    which new rows are counted. Kinds that are not `in_epochs` get epoch 0 and take no ingest lock.
    """

    key: Callable[[R], tuple[Any, ...]]
    name: Callable[[R], str]
    store: Callable[[Any, R, int], Meaning]
    taken: Callable[[str], Message]
    refuse: Callable[[R, Reporter, datetime], Problem | None]
    kind: AcceptedRows.Kind | None = None
    in_epochs: bool = False

    @transaction.atomic
    def __call__(
        self, *, records: Sequence[tuple[int, R, bytes]], rejected: Iterable[Rejected] = (), reporter: Reporter,
        now: datetime,
    ) -> IngestOutcome:  # fmt: skip
        refusals = [Refusal(item.index, "", item.error.message, "invalid", item.raw) for item in rejected]
        outcome, fresh = IngestOutcome(refusals=refusals), 0
        epoch = ingest_lock_shared() if self.in_epochs else 0
        with connection.cursor() as cursor:
            for index, record, raw in sorted(records, key=lambda item: self.key(item[1])):
                name, problem = self.name(record), self.refuse(record, reporter, now)
                if problem is not None:
                    refusals.append(Refusal(index, name, *problem, raw))
                    outcome.conflicts += problem[1] == "conflict"
                    continue
                meaning = self.store(cursor, record, epoch)
                outcome.count(meaning)
                fresh += meaning is Meaning.NEW
                if meaning is Meaning.CONFLICT:
                    refusals.append(Refusal(index, name, self.taken(name), "conflict", raw))
            if self.kind is not None:
                accepted_note(cursor, self.kind, fresh)
        quarantine_add(reporter=reporter, refusals=refusals)
        return outcome


def after_now(record: R, reporter: Reporter, now: datetime) -> Problem | None:
    """Return the problem of a record that lies in the future."""
    latest = latest_instant(reporter, now)
    return (in_the_future(record, now), "future") if latest is not None and last_instant(record)[1] > latest else None


def other_cluster(record: NodeCapacity | EfficiencySample, reporter: Reporter, now: datetime) -> Problem | None:
    """Return the problem of a record of a cluster that the reporter may not report."""
    error = may_not_report(reporter, "cluster", record.cluster)
    return (error, "invalid") if error else None
