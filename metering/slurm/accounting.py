"""Report of the past days from this machine's `sacct`, sent to the platform with the time for which it is complete.

Slurm's database is the durable state, so a report that fails is made again by the next run. The platform notes a gap where
no run looked back as far as the run before it.
"""

import argparse
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from metering.allocation_reports import report_allocations
from metering.intervals import Interval
from metering.records import GpuAllocation
from metering.slurm.jobs import RejectedEntry, ReportError

SACCT: Final = ("sacct", "--json", "--duplicates", "--allusers", "--local")
"""Command that prints the jobs. Without `--local` the head nodes of a federation would report each other's jobs, each under
its own cluster."""
SCONTROL: Final = ("scontrol", "show", "nodes", "--oneliner")
SACCT_S: Final = 600
MOST_PROBLEMS: Final = 99
"""Most problems in a report: the platform accepts a hundred subjects, and the last says how many more there are."""
LATE: Final = timedelta(minutes=10)
"""Delay for which a report is not complete: the controller hands jobs to the database after they start and end."""


def read_sacct(days: int) -> tuple[bytes, Interval]:
    """Return sacct's report of the last `days`, and the time for which it has every job, apart from the delay LATE.

    Raises ReportError if sacct fails, OSError if there is none.
    """
    lookback = timedelta(days=days)
    asked = datetime.now(UTC)
    # sacct takes its "now" after `asked` and before its end, so the returned interval lies within what it printed.
    printed = _printed([*SACCT, f"--starttime=now-{int(lookback.total_seconds())}seconds"])
    return printed, Interval(datetime.now(UTC) - lookback, asked)


def read_nodes() -> str | None:
    """Return what scontrol prints of the nodes; None on a machine without scontrol.  Raises ReportError if it fails."""
    return _printed(list(SCONTROL)).decode("utf-8", "replace") if shutil.which(SCONTROL[0]) else None


def _printed(argv: list[str]) -> bytes:
    done = subprocess.run(argv, capture_output=True, check=False, timeout=SACCT_S)  # noqa: S603  (no shell)
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:500]
        raise ReportError("", argv[0], f"ended with status {done.returncode}: {said}")
    return done.stdout


def report_window(
    options: argparse.Namespace,
    records: Sequence[GpuAllocation],
    rejected: Sequence[RejectedEntry],
    uncounted: Mapping[str, datetime | None],
    window: Interval,
) -> int:
    """Send the records, with the rejected entries and uncounted generic resources as problems; return the exit status."""
    unknown = {f"slurm/{name}": _note("", held_until or window.end) for name, held_until in uncounted.items()}
    return report_allocations(
        options.state, records, endpoint=options.endpoint, token_file=options.token_file,
        agent={"name": "slurm", "cluster": options.cluster, "problems": problems(rejected, window.end),
               "unknown_resources": unknown},
        last={"watermark": window.end - LATE, "watched_since": window.start},
    )  # fmt: skip


def problems(rejected: Sequence[RejectedEntry], now: datetime) -> dict[str, dict[str, Any]]:
    """Return why runs cannot be billed, by run, with the instant of each problem, and the number of further ones.

    The platform notes each subject once in each month. So a run that goes on blocks every month that it reaches, one that
    has ended only the month of its end, and a later run of the same job blocks whatever was decided of the one before.
    """
    latest = sorted(rejected, key=lambda item: _last(item, now), reverse=True)
    found = {_subject(item): _note(str(item.error), _last(item, now)) for item in latest}
    kept = dict(list(found.items())[:MOST_PROBLEMS])
    if more := len(found) - len(kept):
        kept["others"] = _note(f"{more} more cannot be billed: see what the command printed", now)
    return kept


def _note(text: str, at: datetime) -> dict[str, Any]:
    return {"text": text, "since": at, "until": at}


def _last(item: RejectedEntry, now: datetime) -> datetime:
    return (item.run.end or now) if item.run else now


def _subject(item: RejectedEntry) -> str:
    run = item.run
    if run is None:
        return str(item.error.job or item.error)
    began = f" of {run.submit:%Y-%m-%dT%H:%M:%SZ}" if run.submit else ""
    return f"{run.job_id}{began}"
