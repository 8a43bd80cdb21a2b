"""Taking in what is reported rarely: record by record, in the order of their keys, so that two reporters never deadlock."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from billing.usage.models import AcceptedRows
from billing.usage.services.outcome import IngestOutcome, Meaning, Refusal, Reporter, accepted_note, may_not_report
from billing.usage.services.quarantine import quarantine_add
from metering.messages import Message
from metering.records import EfficiencySample, EngineReading, NodeCapacity, Rejected

R = TypeVar("R", NodeCapacity, EfficiencySample, EngineReading)
Problem = tuple[Message, str]
"""What is wrong with a record, and the reason for which it goes to quarantine."""


def ingest_one_by_one(
    cursor: Any, records: Sequence[tuple[int, R, bytes]], rejected: Iterable[Rejected], reporter: Reporter, *,
    key: Callable[[R], tuple[Any, ...]], name: Callable[[R], str], refuse: Callable[[R], Problem | None],
    store: Callable[[Any, R], Meaning], taken: Callable[[str], Message], kind: AcceptedRows.Kind | None = None,
) -> IngestOutcome:  # fmt: skip
    """Take (index, record, raw bytes) in the caller's transaction.

    `refuse`: why a record may not be stored. `store`: write a record, waiting for other reports of the same at this moment.
    `taken`: the answer to a record whose name is taken by other content. `kind`: of rows that are counted when accepted.
    """
    outcome = IngestOutcome(refusals=[Refusal(item.index, "", item.error.message, "invalid", item.raw) for item in rejected])
    fresh = 0
    for index, record, raw in sorted(records, key=lambda item: key(item[1])):
        problem = refuse(record)
        if problem is not None:
            outcome.refusals.append(Refusal(index, name(record), *problem, raw))
            continue
        meaning = store(cursor, record)
        outcome.count(meaning)
        fresh += meaning is Meaning.NEW
        if meaning is Meaning.CONFLICT:
            outcome.refusals.append(Refusal(index, name(record), taken(name(record)), "conflict", raw))
    if kind is not None:
        accepted_note(cursor, kind, fresh)
    quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def other_cluster(reporter: Reporter, cluster: str) -> Problem | None:
    """The problem with a record of a cluster of which the reporter may report nothing."""
    error = may_not_report(reporter, "cluster", cluster)
    return (error, "invalid") if error else None
