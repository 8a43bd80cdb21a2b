"""Readings of the token counters of inference servers: append-only evidence to compare the gateways' records with."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from metering.messages import Message
from metering.records import EngineReading, Rejected


def engine_readings_ingest(
    *,
    records: Sequence[tuple[int, EngineReading, bytes]],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
) -> IngestOutcome:
    """Take a batch; the same (source, replica, model, time) again is a duplicate, with other counts a conflict."""
    outcome = IngestOutcome()
    outcome.refusals += [Refusal(item.index, "", item.error.message, "invalid", item.raw) for item in rejected]
    with transaction.atomic(), connection.cursor() as cursor:
        for index, record, raw in sorted(records, key=lambda item: _key(item[1])):
            key = "/".join((record.source, record.replica, record.model, record.time.isoformat()))
            problem = _problem(record, reporter, now)
            if problem:
                outcome.refusals.append(Refusal(index, key, *problem, raw))
            elif _insert(cursor, record):
                outcome.accepted += 1
            elif _known(cursor, record) == (record.started_at, record.prompt_tokens, record.generation_tokens):
                outcome.duplicates += 1
            else:
                outcome.conflicts += 1
                error = Message("reading %(key)s was reported before with other content; the first one stays", key=key)
                outcome.refusals.append(Refusal(index, key, error, "conflict", raw))
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def _problem(record: EngineReading, reporter: Reporter, now: datetime) -> tuple[Message, str] | None:
    if reporter.source and record.source != reporter.source:
        return Message(
            "source %(source)s: this token may report for %(own)s only",
            source=repr(record.source), own=repr(reporter.source),
        ), "invalid"
    if reporter.future_limit_s is not None and record.time > now + timedelta(seconds=reporter.future_limit_s):
        return Message("time %(time)s lies in the future", time=record.time.isoformat()), "future"
    return None


def _key(record: EngineReading) -> tuple[str, str, str, datetime]:
    return (record.source, record.replica, record.model, record.time)


def _insert(cursor: Any, record: EngineReading) -> bool:
    """Insert the reading, waiting for whoever reports the same at this moment; False where it is known."""
    cursor.execute(
        """INSERT INTO usage_enginereading
               (source, replica, model, time, started_at, prompt_tokens, generation_tokens)
           VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (source, replica, model, time) DO NOTHING RETURNING id""",
        [*_key(record), record.started_at, record.prompt_tokens, record.generation_tokens],
    )
    return cursor.fetchone() is not None


def _known(cursor: Any, record: EngineReading) -> Any:
    cursor.execute(
        """SELECT started_at, prompt_tokens, generation_tokens FROM usage_enginereading
           WHERE source = %s AND replica = %s AND model = %s AND time = %s""",
        _key(record),
    )
    return cursor.fetchone()
