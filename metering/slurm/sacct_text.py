"""PURE: reader of `sacct --parsable2` with a header.

Required columns: JobIDRaw (or JobID), Account, State, Start, End, AllocTRES, and one of SLUID, DBIndex, Submit. Optional:
Cluster, User, Partition, QOS, JobName, NodeList, ElapsedRaw, Suspended. Other columns are not read.

sacct does not escape its delimiter, and users choose the names of their jobs. Where a row has more fields than the header
and exactly one column may contain the delimiter, the surplus belongs to that column; otherwise the row is rejected.

sacct writes local times without an offset. `SLURM_TIME_FORMAT=%s` makes them exact; otherwise the zone of the machine
that ran sacct must be given, and an hour that happens twice is settled by the elapsed time, or the row is rejected.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from metering.slurm.jobs import (
    GRES,
    Report,
    ReportError,
    SacctError,
    SlurmJob,
    Source,
    agree,
    from_epoch,
    known_text,
    read_entries,
)

NEEDED: Final = ("Account", "State", "Start", "End", "AllocTRES")
IDS: Final = frozenset({"jobidraw", "jobid"})
FIXED: Final = IDS | frozenset({
    "", "account", "alloccpus", "allocnodes", "alloctres", "associd", "cluster", "cputime", "cputimeraw", "dbindex",
    "derivedexitcode", "elapsed", "elapsedraw", "eligible", "end", "exitcode", "flags", "gid", "group", "ncpus", "nnodes",
    "nodelist", "ntasks", "partition", "planned", "priority", "qos", "reqcpus", "reqmem", "reqnodes", "reqtres", "restarts",
    "sluid", "start", "state", "submit", "suspended", "timelimit", "timelimitraw", "uid", "user",
})  # fmt: skip
"""Columns whose values never contain a delimiter: numbers, times, and names that administrators give.  Source: sacct.1."""
DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?\Z")


def read_text(content: str, zone: ZoneInfo | None = None, delimiter: str = "|", first_line: int = 1) -> Report:
    """Read the jobs of the table, without rows of steps. `first_line`: number of the header's line.  Raises ReportError."""
    lines = [line.removesuffix("\r") for line in content.split("\n")]  # no other character ends a row of sacct
    columns = _columns(lines[0], delimiter)
    numbered = enumerate(lines[1:], start=first_line + 1)
    sources = (Source(f"line {number}", line) for number, line in numbered if line.strip())
    return read_entries((source, partial(_read, columns, source, zone, delimiter)) for source in sources)


def is_header(line: str, delimiter: str = "|") -> bool:
    """Return True if a line is the header of a table of sacct, even one that lacks columns."""
    names = {name.strip().lower() for name in line.split(delimiter)}
    return len(names & (IDS | {name.lower() for name in NEEDED})) > 1


def _columns(header: str, delimiter: str) -> list[str]:
    columns = [name.strip().lower() for name in header.split(delimiter)]
    for name in NEEDED:
        if name.lower() not in columns:
            raise ReportError("", name, "column missing: ask sacct for it with --format, and keep the header")
    if not IDS & set(columns):
        raise ReportError("", "JobIDRaw", "column missing: ask sacct for it with --format")
    if len(set(columns)) < len(columns):
        raise ReportError("", "header", "a column is there twice")
    return columns


def _read(columns: Sequence[str], source: Source, zone: ZoneInfo | None, delimiter: str) -> SlurmJob | None:
    row = dict(zip(columns, _cells(columns, source.text.split(delimiter), delimiter), strict=True))
    return _job(row, source, zone) if "." not in _id(row) else None


def _cells(columns: Sequence[str], cells: list[str], delimiter: str) -> list[str]:
    """Return one cell for each column: a surplus belongs to the only column that may contain the delimiter."""
    surplus = len(cells) - len(columns)
    free = [place for place, name in enumerate(columns) if name not in FIXED]
    if surplus and (surplus < 0 or len(free) != 1):
        advice = "" if surplus < 0 else f": a field contains {delimiter!r}; use --json, or another --delimiter of sacct"
        raise SacctError("", "fields", f"{len(cells)} cells under {len(columns)} columns{advice}")
    if surplus:
        end = free[0] + surplus + 1
        cells = [*cells[: free[0]], delimiter.join(cells[free[0] : end]), *cells[end:]]
    return [cell.strip() for cell in cells]


def _id(row: Mapping[str, str]) -> str:
    return row.get("jobidraw") or row.get("jobid", "")


def _job(row: Mapping[str, str], source: Source, zone: ZoneInfo | None) -> SlurmJob:
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
        qos=_text(row, "qos"),
        db_index=_text(row, "dbindex"),
        sluid=_text(row, "sluid"),
        source=source,
    )


def _text(row: Mapping[str, str], column: str) -> str:
    return known_text(row.get(column, ""))


def _bounds(
    row: Mapping[str, str], job: str, zone: ZoneInfo | None, elapsed: int | None, suspended: int
) -> tuple[datetime | None, datetime | None]:
    """Return start and end; in an hour that happens twice, the readings that agree with the elapsed time.

    Raises SacctError if none does and the job held devices.
    """
    starts = _instants(row["start"], job, "Start", zone)
    ends = _instants(row["end"], job, "End", zone)
    for start in starts:
        for end in ends:
            if start and end and elapsed is not None and agree(start, end, elapsed, suspended):
                return start, end
    for field, readings in (("Start", starts), ("End", ends)):
        if len(readings) > 1 and GRES in row["alloctres"]:
            advice = "happens twice when clocks go back: set SLURM_TIME_FORMAT=%s for sacct"
            raise SacctError(job, field, f"{row[field.lower()]} {advice}")
    return starts[0], ends[0]


def _instants(text: str, job: str, field: str, zone: ZoneInfo | None) -> list[datetime | None]:
    """Return the readings of a time: [None] if unknown, one, or two where local clocks went back.  Raises SacctError."""
    if not known_text(text):
        return [None]
    if text.isdecimal() and text.isascii() and len(text) < 12:
        return [from_epoch(int(text), job, field)]
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise SacctError(job, field, f"{text[:40]!r} is not a time") from error
    if read.tzinfo is None and zone is None:
        raise ReportError(job, field, f"{text!r} has no offset: set SLURM_TIME_FORMAT=%s for sacct, or give --zone")
    given = read if read.tzinfo else read.replace(tzinfo=zone)
    # The two folds differ only in an hour that happens twice.
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
    """Parse [days-][hours:]minutes:seconds into seconds."""
    if not text:
        return 0
    match = DURATION.match(text)
    if match is None:
        raise SacctError(job, "Suspended", f"{text[:40]!r} is not a duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _tres(text: str, job: str) -> dict[str, int]:
    """Parse the counts of `name=count,...`; memory and other amounts with a unit are left out."""
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
