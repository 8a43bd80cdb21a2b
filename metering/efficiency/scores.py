"""PURE: efficiency samples from measurements of exporters and reports of jobs; an untrusted report gives no score.

    MFU = FLOP/s per device as the job counted them / dense peak of the device for the precision of the products
    HFU = MFU x FLOP executed / FLOP useful, by the recomputation of the job
    coverage = time of the devices that an exporter saw and a report covers / time of the devices

A report is only the job's claim. It is believed if the matrix pipes were busy enough for it (MFU <= 1.1 x tensor activity),
or if the agent is configured so. Pipes that were far busier than the progress explains change no score, which follows from
progress alone, and are reported as a reason for a person to look.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from metering.accelerators import decimal_of
from metering.efficiency.formulas import Formula, FormulaError, hfu_factor, model_flops_per_token, utilisation
from metering.efficiency.jobs import Job, ReportedJob
from metering.efficiency.reports import JobReport
from metering.efficiency.telemetry import PodTelemetry, bucket_interval
from metering.intervals import Interval, union
from metering.peaks import dense_peak_tflops
from metering.records import EfficiencySample

PLACES: Final = 12
HIGHEST_MFU: Final = Fraction(3, 4)
"""Highest plausible MFU, which no training job is known to approach; above it the count of FLOP or the peak is wrong."""
TENSOR_SLACK: Final = Fraction(11, 10)
BUSY_SLACK: Final = Fraction(3, 10)
"""Excess of tensor activity over HFU above which a person should look: dummy products keep the pipes busy as well."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Configuration of scores. `trust_reports`: believe a report that no exporter checks."""

    cluster: str
    peaks: Mapping[str, Mapping[str, str]]
    trust_reports: bool = False


@dataclass(frozen=True, slots=True)
class _Score:
    mfu: Fraction | None = None
    hfu: Fraction | None = None
    reason: str | None = None
    dtype: str = "unknown"
    method: str | None = None


def pod_sample(
    pod: PodTelemetry, jobs: Iterable[ReportedJob], window: Interval, scoring: Scoring
) -> EfficiencySample:
    """Return the sample of one pod in a window: from the first to the last minute in which an exporter saw it."""
    reported = next((item for item in jobs if item.job.has(pod.namespace, pod.pod)), None)
    pieces = [bucket_interval(window, number) for number in pod.buckets]
    span = Interval(pieces[0].start, pieces[-1].end)
    reports = reported.within(span) if reported else []
    shares = _covered(pod, reports, window)
    score = _Score(reason="no report of the job")
    if reported:
        score = _pod_score(pod, reported.job, reports, span, shares, scoring)
    coverage = sum(shares.values(), Fraction(0)) / (pod.devices * len(pieces)) if score.mfu is not None else Fraction(0)
    seconds = Fraction(span.microseconds, 1_000_000) * pod.devices * pod.share
    return _sample(scoring.cluster, span, seconds, coverage, score, pod_uid=pod.pod_uid)


def workload_sample(reported: ReportedJob, window: Interval, scoring: Scoring) -> EfficiencySample | None:
    """Return the sample of a job known by its own reports only; None if it reported nothing in the window."""
    job, reports = reported.job, reported.within(window)
    pieces = union([cut for report in reports if (cut := report.span.overlap(window))])
    if not pieces:
        return None
    span = Interval(pieces[0].start, pieces[-1].end)
    score = _reported(reports, job, job.accelerator or "", Fraction(1), span, scoring)
    if score.mfu is not None and not scoring.trust_reports:
        score = _Score(reason="nothing checks the report", dtype=score.dtype, method=score.method)
    covered = Fraction(sum(piece.microseconds for piece in pieces), span.microseconds)
    seconds = Fraction(span.microseconds, 1_000_000) * (job.devices or 0)
    coverage = covered if score.mfu is not None else Fraction(0)
    return _sample(scoring.cluster, span, seconds, coverage, score, workload=job.workload)


def _sample(
    cluster: str,
    span: Interval,
    seconds: Fraction,
    coverage: Fraction,
    score: _Score,
    *,
    pod_uid: str | None = None,
    workload: str | None = None,
) -> EfficiencySample:
    return EfficiencySample(
        cluster=cluster, start=span.start, end=span.end, gpu_seconds=decimal_of(seconds, 6),
        mfu=None if score.mfu is None else decimal_of(score.mfu, PLACES),
        hfu=None if score.hfu is None else decimal_of(score.hfu, PLACES),
        dtype=score.dtype, coverage=decimal_of(coverage, PLACES), pod_uid=pod_uid, workload=workload,
        method=score.method, reason=score.reason,
    )  # fmt: skip


def _covered(pod: PodTelemetry, reports: Sequence[JobReport], window: Interval) -> dict[tuple[str, int], Fraction]:
    """Return the share of each measured minute of each device that reports cover."""
    spoken = union([report.span for report in reports])
    shares: dict[int, Fraction] = {}
    for number in pod.buckets:
        piece = bucket_interval(window, number)
        inside = sum(cut.microseconds for part in spoken if (cut := part.overlap(piece)))
        shares[number] = Fraction(inside, piece.microseconds)
    return {(device, number): shares[number] for device, numbers in pod.measured.items() for number in numbers}


def _pod_score(
    pod: PodTelemetry,
    job: Job,
    reports: Sequence[JobReport],
    span: Interval,
    shares: Mapping[tuple[str, int], Fraction],
    scoring: Scoring,
) -> _Score:
    if pod.shared:
        return _Score(reason="device shared with another pod", dtype=job.dtype)
    score = _reported(reports, job, job.accelerator or pod.accelerator, pod.share, span, scoring)
    if score.mfu is None:
        return score
    tensor = _tensor(pod, shares)
    doubt = _doubt(score.mfu, tensor, trusted=scoring.trust_reports)
    if doubt:
        return _Score(reason=doubt, dtype=score.dtype, method=score.method)
    return replace(score, reason=_unexplained(score.hfu, tensor)) if score.hfu is not None else score


def _tensor(pod: PodTelemetry, shares: Mapping[tuple[str, int], Fraction]) -> Fraction | None:
    """Return the mean tensor activity where reports cover; None if an exporter lacks it for any such minute."""
    spoken = {key: share for key, share in shares.items() if share}
    if not spoken or any(key not in pod.tensor for key in spoken):
        return None
    weight = sum(spoken.values(), Fraction(0))
    return sum((pod.tensor[key] * share for key, share in spoken.items()), Fraction(0)) / weight


def _doubt(mfu: Fraction, tensor: Fraction | None, *, trusted: bool) -> str | None:
    """Return why a reported MFU is not believed, or None.  Source: METERING facts A5.3; half-idle pipes do no 60 %."""
    if tensor is not None and mfu > TENSOR_SLACK * tensor:
        return f"reported MFU {float(mfu):.3f} is more than the matrix pipes were busy ({float(tensor):.3f})"
    return "no tensor activity was measured to check the report" if tensor is None and not trusted else None


def _unexplained(hfu: Fraction, tensor: Fraction | None) -> str | None:
    """Return a reason to look at tensor activity that training does not explain, or None.  Source: PRICING facts 4."""
    if tensor is None or tensor - hfu <= BUSY_SLACK:
        return None
    return f"look at it: matrix pipes were busy {float(tensor):.3f}, the progress explains {float(hfu):.3f}"


def _reported(
    reports: Sequence[JobReport], job: Job, accelerator: str, share: Fraction, span: Interval, scoring: Scoring
) -> _Score:
    """Return the score that the reports claim, before any check."""
    dtype = next((report.dtype for report in reports if report.dtype), job.dtype)
    problem = _problem(reports, dtype)
    if problem:
        return _Score(reason=problem, dtype=dtype)
    peak = dense_peak_tflops(accelerator, dtype, scoring.peaks)
    if peak is None:
        return _Score(reason=f"dense peak of {accelerator or 'the device'} in {dtype} is not known", dtype=dtype)
    formula = job.formula or reports[0].formula
    try:
        flops = _mean_flops(reports, job, formula, span)
    except FormulaError as error:
        return _Score(reason=str(error), dtype=dtype)
    return _scored(utilisation(flops, Fraction(peak) * share), formula, job, reports[0], dtype)


def _scored(mfu: Fraction, formula: Formula, job: Job, report: JobReport, dtype: str) -> _Score:
    method = f"{formula.value} ({job.reports.format})"
    if not 0 < mfu <= HIGHEST_MFU:
        reason = f"MFU {float(mfu):.3f} is not plausible: wrong peak, precision or count of FLOP"
        return _Score(reason=reason, dtype=dtype, method=method)
    recomputation = report.recomputation or job.recomputation
    factor = hfu_factor(recomputation, formula, report.shape or job.model) if recomputation else None
    if factor is None:
        shape = f"{recomputation} recomputation needs the model's shape"
        missing = shape if recomputation else "recomputation is not reported"
        return _Score(mfu=mfu, reason=f"no HFU: {missing}", dtype=dtype, method=method)
    return _Score(mfu, mfu * factor, None, dtype, method)


def _problem(reports: Sequence[JobReport], dtype: str) -> str | None:
    """Return why the reports cannot be combined into one number, or None."""
    if not reports:
        return "no report of the job in this time"
    problems = sorted({report.problem for report in reports if report.problem})
    if problems:
        return problems[0]
    for what, values in (
        ("formulas", {report.formula for report in reports}),
        ("precisions", {report.dtype or dtype for report in reports}),
        ("kinds of recomputation", {report.recomputation for report in reports}),
    ):
        if len(values) > 1:
            return f"reports of several {what} in one sample"
    return None


def _mean_flops(reports: Sequence[JobReport], job: Job, formula: Formula, span: Interval) -> Fraction:
    """Return FLOP/s per device, weighted by the time that each report covers."""
    total = weight = Fraction(0)
    for report in reports:
        cut = report.span.overlap(span)
        seconds = Fraction(cut.microseconds if cut else 0)
        total += seconds * _flops(report, job, formula)
        weight += seconds
    return total / weight


def _flops(report: JobReport, job: Job, formula: Formula) -> Fraction:
    if report.flops_per_second is not None:
        return report.flops_per_second
    shape = report.shape or job.model
    if report.tokens_per_second is None or not report.devices:
        raise FormulaError("report without tokens or devices")
    if shape is None:
        raise FormulaError("the model's active parameters are not reported")
    return model_flops_per_token(formula, shape) * report.tokens_per_second / report.devices


def hours_of(start: datetime, end: datetime) -> list[Interval]:
    """Return the whole UTC hours in [start, end): the windows of samples, so that reading again gives the same ones."""
    hour = timedelta(hours=1)
    first = start.replace(minute=0, second=0, microsecond=0)
    first = first if first == start else first + hour
    count = max((end - first) // hour, 0)
    return [Interval(first + hour * number, first + hour * (number + 1)) for number in range(count)]
