"""PURE: `sacct --parsable2` with a header.

Needed: JobIDRaw (or JobID), Account, State, Start, End, AllocTRES, and one of SLUID, DBIndex, Submit. Read where given:
Cluster, User, Partition, JobName, NodeList, ElapsedRaw, Suspended. Other columns are not read.

sacct writes local times without an offset. `SLURM_TIME_FORMAT=%s` makes them exact; otherwise the zone of the machine
that ran sacct must be given, and an hour that happens twice is settled by the elapsed time.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from metering.slurm.jobs import SacctError, SlurmJob, agree, from_epoch, known_text

NEEDED: Final = ("Account", "State", "Start", "End", "AllocTRES")
DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?\Z")


def read_text(content: bytes, zone: ZoneInfo | None = None) -> list[SlurmJob]:
    """Jobs of the table; rows of steps are left out.  Raises SacctError."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SacctError("", "document", f"not UTF-8 at byte {error.start}") from error
    header = lines[0].split("|") if lines else []
    columns = {name.strip().lower(): place for place, name in enumerate(header)}
    for name in NEEDED:
        if name.lower() not in columns:
            raise SacctError("", name, "column missing: ask sacct for it with --format, and keep the header")
    if not {"jobidraw", "jobid"} & columns.keys():
        raise SacctError("", "JobIDRaw", "column missing: ask sacct for it with --format")
    rows = (_row(columns, line, number) for number, line in enumerate(lines[1:], start=2) if line.strip())
    return [_job(row, zone) for row in rows if "." not in _id(row)]


def _row(columns: Mapping[str, int], line: str, number: int) -> dict[str, str]:
    cells = line.split("|")
    if len(cells) != len(columns):
        raise SacctError("", f"line {number}", f"{len(cells)} cells under {len(columns)} columns")
    return {name: cells[place].strip() for name, place in columns.items()}


def _id(row: Mapping[str, str]) -> str:
    return row.get("jobidraw") or row.get("jobid", "")


def _job(row: Mapping[str, str], zone: ZoneInfo | None) -> SlurmJob:
    job = _id(row)
    elapsed = _elapsed(row, job)
    suspended = _seconds(_text(row, "suspended"), job)
    start, end = _bounds(row, job, zone, elapsed, suspended)
    state = _text(row, "state")
    if not job or not state:
        raise SacctError(job, "State" if job else "JobIDRaw", "missing")
    return SlurmJob(
        job_id=job,
        account=_text(row, "account"),
        states=(state.split()[0].rstrip("+"),),  # "CANCELLED by 1000"
        submit=_instants(row.get("submit", ""), job, "Submit", zone)[0],
        start=start,
        end=end,
        elapsed_seconds=elapsed,
        suspended_seconds=suspended,
        tres=_tres(row["alloctres"], job),
        cluster=_text(row, "cluster"),
        user=_text(row, "user"),
        partition=_text(row, "partition"),
        name=_text(row, "jobname"),
        nodes=_text(row, "nodelist"),
        db_index=_text(row, "dbindex"),
        sluid=_text(row, "sluid"),
    )


def _text(row: Mapping[str, str], column: str) -> str:
    return known_text(row.get(column, ""))


def _bounds(
    row: Mapping[str, str], job: str, zone: ZoneInfo | None, elapsed: int | None, suspended: int
) -> tuple[datetime | None, datetime | None]:
    """Start and end; of the readings of an hour that happens twice those that agree with the elapsed time."""
    starts = _instants(row["start"], job, "Start", zone)
    ends = _instants(row["end"], job, "End", zone)
    for start in starts:
        for end in ends:
            if start and end and elapsed is not None and agree(start, end, elapsed, suspended):
                return start, end
    return starts[0], ends[0]


def _instants(text: str, job: str, field: str, zone: ZoneInfo | None) -> list[datetime | None]:
    """The readings of a time: none known, one, or two where local clocks went back.  Raises SacctError."""
    if not known_text(text):
        return [None]
    if text.isdecimal() and text.isascii() and len(text) < 12:
        return [from_epoch(int(text), job, field)]
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise SacctError(job, field, f"{text[:40]!r} is not a time") from error
    if read.tzinfo is None and zone is None:
        raise SacctError(job, field, f"{text!r} has no offset: set SLURM_TIME_FORMAT=%s for sacct, or give --zone")
    given = read if read.tzinfo else read.replace(tzinfo=zone)
    instants = dict.fromkeys(given.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return [from_epoch(int(instant.timestamp()), job, field) for instant in instants]


def _elapsed(row: Mapping[str, str], job: str) -> int | None:
    text = _text(row, "elapsedraw")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 12:
        raise SacctError(job, "ElapsedRaw", f"{text[:40]!r} is not a number of seconds")
    return int(text)


def _seconds(text: str, job: str) -> int:
    """Seconds of [days-][hours:]minutes:seconds."""
    if not text:
        return 0
    match = DURATION.match(text)
    if match is None:
        raise SacctError(job, "Suspended", f"{text[:40]!r} is not a duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _tres(text: str, job: str) -> dict[str, int]:
    """Counts of `name=count,...`; memory and other amounts with a unit are not read."""
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, equals, count = item.partition("=")
        if not equals or not name:
            raise SacctError(job, "AllocTRES", f"{item[:40]!r} is not name=count")
        if count.isdecimal() and len(count) < 16:
            found[name] = int(count)
        elif name.startswith("gres/"):
            raise SacctError(job, "AllocTRES", f"{item[:40]!r} is not a count")
    return found
