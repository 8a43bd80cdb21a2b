"""Taking in what is reported rarely: record by record, in the order of their keys, so that two reporters never deadlock."""

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
"""What is wrong with a record, and the reason for which it goes to quarantine."""


@dataclass(frozen=True)
class OneByOne(Generic[R]):
    """Takes a batch of (index, record, raw bytes) of one kind.

    `store`: write a record known since an epoch, waiting for other reports of the same at this moment. `taken`: the answer
    to a record whose name is taken by other content. `refuse`: why a record may not be stored. `kind`: of rows that are
    counted when accepted. Kinds that are not `in_epochs` get epoch 0 and wait for no close.
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
    """The problem with what was measured at a time that has not come."""
    latest = latest_instant(reporter, now)
    return (in_the_future(record, now), "future") if latest is not None and last_instant(record)[1] > latest else None


def other_cluster(record: NodeCapacity | EfficiencySample, reporter: Reporter, now: datetime) -> Problem | None:
    """The problem with a record of a cluster of which the reporter may report nothing."""
    error = may_not_report(reporter, "cluster", record.cluster)
    return (error, "invalid") if error else None
