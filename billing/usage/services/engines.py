"""Readings of the token counters of inference servers: append-only evidence to compare the gateways' records with."""

from datetime import datetime
from typing import Any

from billing.usage.services.one_by_one import OneByOne, Problem, after_now
from billing.usage.services.outcome import Meaning, Reporter, may_not_report
from metering.messages import Message
from metering.records import EngineReading


def _problem(record: EngineReading, reporter: Reporter, now: datetime) -> Problem | None:
    if error := may_not_report(reporter, "source", record.source):
        return error, "invalid"
    return after_now(record, reporter, now)


def _key(record: EngineReading) -> tuple[str, str, str, datetime]:
    return (record.source, record.replica, record.model, record.time)


def _name(record: EngineReading) -> str:
    return "/".join((record.source, record.replica, record.model, record.time.isoformat()))


def _store(cursor: Any, record: EngineReading, _: int) -> Meaning:
    counts = (record.started_at, record.prompt_tokens, record.generation_tokens)
    cursor.execute(
        """INSERT INTO usage_enginereading
               (source, replica, model, time, started_at, prompt_tokens, generation_tokens)
           VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (source, replica, model, time) DO NOTHING RETURNING id""",
        [*_key(record), *counts],
    )
    if cursor.fetchone() is not None:
        return Meaning.NEW
    cursor.execute(
        """SELECT started_at, prompt_tokens, generation_tokens FROM usage_enginereading
           WHERE source = %s AND replica = %s AND model = %s AND time = %s""",
        _key(record),
    )
    return Meaning.DUPLICATE if cursor.fetchone() == counts else Meaning.CONFLICT


def reading_taken(key: str) -> Message:
    """Return the refusal of a reading whose key is stored with other counts."""
    return Message("reading %(key)s was reported before with other content; the first one stays", key=key)


engine_readings_ingest = OneByOne(_key, _name, _store, reading_taken, _problem)
"""Ingest of readings: the same (source, replica, model, time) again is a duplicate, with other counts a conflict."""
