"""Jobs file: pods of each training job, and the facts that turn its reports into a score."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import yaml

from metering.efficiency.formulas import Formula, ModelShape, Positive, Recomputation
from metering.efficiency.reports import JobReport, read_reports
from metering.intervals import Interval, to_us

Text = Annotated[str, msgspec.Meta(min_length=1)]


class JobsFileError(ValueError):
    """Error in a jobs file or a log that it names; the message names the file, and the job or line."""


class LogFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log with a job's own reports. `zone`: of times without an offset."""

    format: Literal["megatron", "torchtitan", "nemo", "progress"]
    file: Text
    zone: Text | None = None


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Training job: its pods by namespace and name pattern, or the name of its workload.

    `dtype`: precision of the matrix products, whose peak is the divisor. `recomputation`: which activations the backward
    pass computes again; without it there is an MFU but no HFU. `accelerator`: product, where no exporter reports it.
    `devices`: of the whole job, for scores by workload.
    """

    reports: LogFile
    namespace: Text | None = None
    pod: Text = "*"
    workload: Text | None = None
    dtype: Text = "bf16"
    recomputation: Recomputation | None = None
    formula: Formula | None = None
    model: ModelShape | None = None
    accelerator: Text | None = None
    devices: Positive | None = None

    def __post_init__(self) -> None:
        if (self.namespace is None) == (self.workload is None):
            raise ValueError("exactly one of namespace and workload must name the job")
        if self.workload is not None and (self.devices is None or self.accelerator is None):
            raise ValueError(f"workload {self.workload!r} needs devices and accelerator: no exporter reports them")

    def has(self, namespace: str, pod: str) -> bool:
        """Return True if a pod is one of the job's."""
        return self.namespace is not None and fnmatchcase(namespace, self.namespace) and fnmatchcase(pod, self.pod)


class JobsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs (`jobs`), and dense TFLOP/s of products by their contract (`peaks`), which precede the built-in table."""

    jobs: tuple[Job, ...] = ()
    peaks: dict[str, dict[str, str]] = {}


class ReportedJob:
    """Training job with its reports."""

    def __init__(self, job: Job, reports: Sequence[JobReport]) -> None:
        self.job = job
        self._by_hour: dict[int, list[JobReport]] = defaultdict(list)
        for report in reports:
            for hour in _hours(report.span):
                self._by_hour[hour].append(report)

    def within(self, span: Interval) -> list[JobReport]:
        """Return the reports that overlap the time, each once."""
        found = {id(report): report for hour in _hours(span) for report in self._by_hour.get(hour, ())}
        return [report for report in found.values() if report.span.overlap(span)]


def _hours(span: Interval) -> range:
    hour = 3600 * 1_000_000
    start = to_us(span.start)
    return range(start // hour, (start + span.microseconds) // hour + 1)


def read_jobs_file(path: Path) -> JobsFile:
    """Decode a jobs file.  Raises JobsFileError."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        return msgspec.convert(given or {}, JobsFile)
    except (OSError, UnicodeDecodeError) as error:
        raise JobsFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise JobsFileError(f"{path}: {' '.join(str(error).split())}") from error


def read_job(job: Job, beside: Path) -> ReportedJob:
    """Read a job's reports; a relative log is beside the jobs file.  Raises JobsFileError."""
    path = beside / job.reports.file
    try:
        zone = ZoneInfo(job.reports.zone) if job.reports.zone else None
        with path.open(encoding="utf-8", errors="replace") as lines:
            return ReportedJob(job, read_reports(job.reports.format, lines, zone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        problem = getattr(error, "strerror", None) or error
        raise JobsFileError(" ".join(f"{path}: {problem}".split())) from error


def peaks_of(given: JobsFile) -> Mapping[str, Mapping[str, str]]:
    """Return a site's own peaks, with precisions in lower case."""
    return {product: {dtype.lower(): peak for dtype, peak in peaks.items()} for product, peaks in given.peaks.items()}
