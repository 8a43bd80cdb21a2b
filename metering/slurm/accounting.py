"""The days that just passed, read from this machine's `sacct` and reported to the platform with how far they are complete.

Slurm's database is the durable state, so a report that fails is made again by the next run. The platform notes a gap where
no run looked back to the one before.
"""

import argparse
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from metering.allocation_reports import report_allocations
from metering.intervals import Interval
from metering.records import GpuAllocation
from metering.slurm.jobs import RejectedEntry, ReportError

SACCT: Final = ("sacct", "--json", "--duplicates", "--allusers", "--local")
"""`--local`: the head nodes of a federation would else report each other's jobs, each under its own cluster."""
SACCT_S: Final = 600
LATE: Final = timedelta(minutes=10)
"""The controller hands jobs to the database a little later than they start and end."""


def read_sacct(days: int) -> tuple[bytes, Interval]:
    """The report of the last `days`, and the time in which every job that ran is in it, but of the last minutes.

    Raises ReportError where sacct fails, OSError where there is none.
    """
    lookback = timedelta(days=days)
    asked = datetime.now(UTC)
    argv = [*SACCT, f"--starttime=now-{int(lookback.total_seconds())}seconds"]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=SACCT_S)  # noqa: S603  (no shell)
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:500]
        raise ReportError("", "sacct", f"ended with status {done.returncode}: {said}")
    return done.stdout, Interval(datetime.now(UTC) - lookback, asked)


def report_window(
    options: argparse.Namespace, records: Sequence[GpuAllocation], rejected: Sequence[RejectedEntry], window: Interval
) -> int:
    """Send the records, with the entries that cannot be taken as problems that somebody must solve; the exit status."""
    problems = {item.error.job or str(item.error): str(item.error) for item in rejected}
    return report_allocations(
        options.state, records, endpoint=options.endpoint, token_file=options.token_file,
        agent={"name": "slurm", "cluster": options.cluster, "problems": problems},
        last={"watermark": window.end - LATE, "watched_since": window.start},
    )  # fmt: skip
