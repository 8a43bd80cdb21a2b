"""PURE: run of a Slurm job as the accounting database knows it, and checks that both readers share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from metering.record_checks import EARLIEST, LATEST

NO_VALUES: Final = frozenset({"", "unknown", "none", "(null)", "null", "none assigned", "n/a"})
GRES: Final = "gres/"
WAITING: Final = frozenset({"PENDING"})


class SacctError(ValueError):
    """Error in one entry of a report of sacct, with its job and field."""

    def __init__(self, job: str, field: str, problem: str) -> None:
        super().__init__(f"job {job}: {field}: {problem}" if job else f"{field}: {problem}")
        self.job = job
        self.field = field


class ReportError(SacctError):
    """Error in a report as a whole, or in how it is read: none of its entries can be taken."""


@dataclass(frozen=True, slots=True)
class Source:
    """Place of an entry in its report ("line 7", "entry 7"), and its text."""

    place: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RejectedEntry:
    """Entry that cannot be taken, and the error, for a person to solve. `run`: the entry's job, if it could be read."""

    source: Source
    error: SacctError
    run: "SlurmJob | None" = None


@dataclass(frozen=True, slots=True)
class Report:
    """Result of reading a report. `notes`: further facts for a person, such as text that was left out."""

    jobs: list["SlurmJob"]
    rejected: list[RejectedEntry]
    notes: tuple[str, ...] = ()


def read_entries(entries: Iterable[tuple[Source, Callable[[], "SlurmJob | None"]]]) -> Report:
    """Read entry by entry, so that a wrong entry never costs its neighbours.  Raises ReportError."""
    report = Report([], [])
    for source, read in entries:
        try:
            if job := read():
                report.jobs.append(job)
        except ReportError:
            raise
        except SacctError as error:
            report.rejected.append(RejectedEntry(source, error))
    return report


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Record of the accounting database. A requeued job has one for each run, all with the same `job_id`.

    Times are UTC; `start` is None for a job that never ran, `end` for one that still runs. `elapsed_seconds` does not
    contain `suspended_seconds`. `tres` are the allocated ones, such as {"gres/gpu": 8, "gres/gpu:h800": 8}.
    """

    job_id: str
    account: str
    states: tuple[str, ...]
    submit: datetime | None
    start: datetime | None
    end: datetime | None
    tres: Mapping[str, int]
    elapsed_seconds: int | None = None
    suspended_seconds: int = 0
    eligible: datetime | None = None
    cluster: str = ""
    user: str = ""
    partition: str = ""
    name: str = ""
    nodes: str = ""
    qos: str = ""
    db_index: str = ""
    sluid: str = ""
    source: Source = field(default=Source(), compare=False)

    @property
    def record_key(self) -> str:
        """Return the SLUID, else the database's index, else its unique key, job and time of submission.

        The job id alone would merge all runs of a requeued job.  Raises SacctError.
        """
        if self.sluid or self.db_index:
            return self.sluid or self.db_index
        if self.submit is None:
            raise SacctError(self.job_id, "Submit", "missing, and there is neither SLUID nor DBIndex to distinguish runs")
        return f"{self.job_id}@{int(self.submit.timestamp())}"

    @property
    def allocated_from(self) -> datetime | None:
        """Return the start of the allocation, or None if nothing was allocated yet.  Raises SacctError.

        Some releases of the 22.05 and 23.02 JSON put the eligible time in place of the start; an ended job shows it, because
        elapsed = end - start - suspended.  Source: SchedMD/slurm openapi dbv0.0.38, as_mysql_jobacct_process.
        """
        if self.start is None or WAITING & set(self.states):
            return None
        if self.end is None or self.elapsed_seconds is None:
            return self.start
        if agree(self.start, self.end, self.elapsed_seconds, self.suspended_seconds):
            return self.start
        started = self.end.timestamp() - self.elapsed_seconds - self.suspended_seconds
        if self.start == self.eligible and started >= self.start.timestamp():
            return datetime.fromtimestamp(started, UTC)
        raise SacctError(
            self.job_id,
            "Elapsed",
            f"{self.elapsed_seconds} s and {self.suspended_seconds} s suspended do not lie between "
            f"{self.start.isoformat()} and {self.end.isoformat()}",
        )


def agree(start: datetime, end: datetime, elapsed: int, suspended: int) -> bool:
    """Return True if elapsed = end - start - suspended, to the second; Slurm never shows less than 0."""
    wall = int((end - start).total_seconds())
    return abs(max(wall - suspended, 0) - elapsed) <= 1 and wall >= 0


def from_epoch(seconds: int, job: str, field: str) -> datetime | None:
    """Return the instant of a Unix time, None for 0.  Raises SacctError."""
    if seconds == 0:
        return None
    if not EARLIEST.timestamp() <= seconds < LATEST.timestamp():
        raise SacctError(job, field, f"{seconds} is not a time between {EARLIEST.year} and {LATEST.year}")
    return datetime.fromtimestamp(seconds, UTC)


def known_text(text: str) -> str:
    """Return the text, or "" if it is one of Slurm's words for no value."""
    return "" if text.strip().lower() in NO_VALUES else text.strip()


def gres_counts(job: SlurmJob, gres: str) -> Iterator[tuple[str, int]]:
    """Yield (type, count) of one generic resource, each device once; the type is "" if there is none.  Raises SacctError.

    Slurm lists a typed allocation twice where both names are tracked: `gres/gpu=8,gres/gpu:h800=8`. The untyped count is the
    whole.  Source: SchedMD/slurm doc/html/tres.shtml.
    """
    prefix = f"{GRES}{gres}:"
    typed = {name.removeprefix(prefix): count for name, count in sorted(job.tres.items()) if name.startswith(prefix)}
    named = sum(typed.values())
    whole = job.tres.get(f"{GRES}{gres}", named)
    if whole < named:
        raise SacctError(job.job_id, "AllocTRES", f"{GRES}{gres}={whole} is less than the {named} of its types")
    yield from ((name, count) for name, count in (*typed.items(), ("", whole - named)) if count > 0)
