"""PURE: reader of `sacct --json`, from Slurm 21.08 on.

Two forms changed over releases: the state became a list of the base state and its flags (23.11), and numbers may come as
{"set": bool, "infinite": bool, "number": n} (23.02). Both forms are read everywhere.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from metering.slurm.jobs import Report, ReportError, SacctError, SlurmJob, Source, from_epoch, known_text, read_entries


def read_json(content: str) -> Report:
    """Read the jobs of the document.  Raises ReportError."""
    try:
        document: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ReportError("", "document", f"not JSON: {error}") from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise ReportError("", "jobs", "missing: this is not what `sacct --json` prints")
    if document.get("errors"):
        errors = msgspec.json.encode(document["errors"]).decode()
        raise ReportError("", "errors", f"sacct could not report everything: {errors[:200]}")
    sources = (Source(f"entry {place}", msgspec.json.encode(entry).decode()) for place, entry in enumerate(jobs, start=1))
    return read_entries((source, partial(_job, entry, source)) for entry, source in zip(jobs, sources, strict=True))


def _job(entry: Any, source: Source) -> SlurmJob:
    if not isinstance(entry, dict):
        raise SacctError("", "jobs", "is not an object")
    job_id = str(_count(entry, "job_id", ""))
    return SlurmJob(
        job_id=job_id,
        account=_text(entry, "account"),
        states=_states(entry, job_id),
        submit=_time(entry, "time.submission", job_id),
        start=_time(entry, "time.start", job_id),
        end=_time(entry, "time.end", job_id),
        eligible=_time(entry, "time.eligible", job_id),
        elapsed_seconds=_number(entry, "time.elapsed", job_id),
        suspended_seconds=_number(entry, "time.suspended", job_id) or 0,
        tres=_tres(entry, job_id),
        cluster=_text(entry, "cluster"),
        user=_text(entry, "user") or _text(entry, "association.user"),
        partition=_text(entry, "partition"),
        name=_text(entry, "name"),
        nodes=_text(entry, "nodes"),
        qos=_text(entry, "qos"),
        db_index=_text(entry, "db_index"),
        sluid=_text(entry, "sluid"),
        source=source,
    )


def _at(entry: Mapping[str, Any], path: str) -> Any:
    value: Any = entry
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(entry: Mapping[str, Any], path: str) -> str:
    value = _at(entry, path)
    return known_text(str(value)) if isinstance(value, str | int) else ""


def _number(entry: Mapping[str, Any], path: str, job: str) -> int | None:
    """Return a count, or None if it is not set.  Raises SacctError."""
    value = _at(entry, path)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SacctError(job, path, f"{msgspec.json.encode(value).decode()[:80]} is not a count")
    return value


def _count(entry: Mapping[str, Any], path: str, job: str) -> int:
    value = _number(entry, path, job)
    if value is None:
        raise SacctError(job, path, "missing")
    return value


def _time(entry: Mapping[str, Any], path: str, job: str) -> datetime | None:
    return from_epoch(_number(entry, path, job) or 0, job, path)


def _states(entry: Mapping[str, Any], job: str) -> tuple[str, ...]:
    current = _at(entry, "state.current")
    states = [current] if isinstance(current, str) else current
    if not isinstance(states, list) or not states or not all(isinstance(item, str) and item for item in states):
        raise SacctError(job, "state.current", "missing")
    return tuple(states)


def _tres(entry: Mapping[str, Any], job: str) -> dict[str, int]:
    """Return the allocated TRES as sacct's text names them; a count of null is unknown, as for energy, and left out."""
    allocated = _at(entry, "tres.allocated")
    if not isinstance(allocated, list):
        raise SacctError(job, "tres.allocated", "missing")
    found: dict[str, int] = {}
    for item in allocated:
        kind, name = _text(item, "type"), _text(item, "name")
        count = _number(item, "count", job)
        if count is not None:
            found[f"{kind}/{name}" if name else kind] = count
    return found
