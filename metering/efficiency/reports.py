"""PURE: reports of training jobs from their logs: FLOP/s or tokens/s per device over an interval.

A report covers only the time that it measured: for Megatron-LM the iterations since the line before, so that a checkpoint
between two lines is not covered; for torchtitan all time since its line before, which is how it measures. The first line
after a start is left out if the start of its measurement is unknown.

A line may begin with the RFC 3339 instant that `kubectl logs --timestamps` adds; that instant is then used.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

import msgspec

from metering.efficiency.formulas import Formula, ModelShape, Positive, Recomputation
from metering.intervals import Interval
from metering.record_checks import EARLIEST, LATEST
from metering.records import Count

NUMBER: Final = r"[-+]?(?:\d+(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf"


def _after(label: str) -> re.Pattern[str]:
    """Return the pattern of the first number after a label."""
    return re.compile(rf"(?<![\w]){re.escape(label)}\s*({NUMBER})")


ELAPSED: Final = _after("elapsed time per iteration (ms):")
THROUGHPUT: Final = _after("throughput per GPU (TFLOP/s/GPU):")
TITAN_TFLOPS: Final = _after("tflops:")
STEP_SECONDS: Final = _after("train_step_timing in s:")
NEMO_TFLOPS: Final = _after("TFLOPS_per_GPU:")
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
STAMP: Final = re.compile(r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ")
CLOCK: Final = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?(?=[\]\s,])"
)
MEGATRON: Final = re.compile(r"\biteration\s+(?P<step>\d+)\s*/\s*\d+\s*\|")
TITAN: Final = re.compile(r"\bstep:\s*(?P<step>\d+)\b.*\btps:")
NEMO: Final = re.compile(r"\bTraining epoch \d+, iteration (?P<iteration>\d+)/\d+")
PUSHED: Final = re.compile(r"\bsuanpan-progress (\{.*\})\s*\Z")
LONGEST_ITERATION: Final = Decimal(86_400)


class ReportError(ValueError):
    """Error of a log that cannot be placed in time, or of a progress line that breaks its form; names the line."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """Report of a job on [start, end): FLOP/s per device as it counted them, or its tokens/s over all devices.

    `formula`: the job's own count of FLOP. `problem`: why the line is no measurement ("mfu not computed"), else empty.
    """

    span: Interval
    formula: Formula
    flops_per_second: Fraction | None = None
    tokens_per_second: Fraction | None = None
    devices: int | None = None
    dtype: str | None = None
    recomputation: Recomputation | None = None
    shape: ModelShape | None = None
    problem: str = ""


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Line of the push helper, `suanpan-progress {...}`: tokens that all devices of the job trained on in an interval."""

    start: datetime
    end: datetime
    tokens: Count
    devices: Positive
    dtype: str | None = None
    recomputation: Recomputation | None = None
    formula: Formula = Formula.SIX_N
    model: ModelShape | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at: datetime | None
    text: str


Reader = Callable[[Iterator[_Line]], Iterator[JobReport]]


def read_reports(kind: str, lines: Iterable[str], zone: tzinfo | None = None) -> list[JobReport]:
    """Return the reports of a log of the given kind, in the order of the log.

    `zone`: of times without an offset; if None, such times are refused.  Raises ReportError.
    """
    return list(READERS[kind](_placed(lines, zone)))


def _placed(lines: Iterable[str], zone: tzinfo | None) -> Iterator[_Line]:
    for number, raw in enumerate(lines, start=1):
        text = COLOUR.sub("", raw.rstrip("\r\n"))
        stamp = STAMP.match(text)
        if stamp:
            yield _Line(number, _valid(datetime.fromisoformat(stamp.group(1)), number), text[stamp.end() :])
        else:
            yield _Line(number, _clock(text, number, zone), text)


def _clock(text: str, number: int, zone: tzinfo | None) -> datetime | None:
    """Return the instant in the first 80 characters of a line, or None."""
    found = CLOCK.search(text[:80])
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    try:
        at = datetime(  # noqa: DTZ001  (the zone follows)
            int(year), int(month), int(day), int(hour), int(minute), int(second), int((fraction or "0").ljust(6, "0"))
        )
    except ValueError as error:
        raise ReportError(f"line {number}: {found.group(0)!r} is not a time") from error
    if offset:
        return _valid(at.replace(tzinfo=datetime.fromisoformat(f"2000-01-01T00:00:00{offset}").tzinfo), number)
    return None if zone is None else _valid(at.replace(tzinfo=zone), number)


def _valid(at: datetime, number: int) -> datetime:
    if not EARLIEST <= at < LATEST:
        raise ReportError(f"line {number}: {at.isoformat()} is not between {EARLIEST.year} and {LATEST.year}")
    return at.astimezone(UTC)


def _instant(line: _Line) -> datetime:
    if line.at is None:
        raise ReportError(
            f"line {line.number}: no instant with an offset; give the zone, or a log of `kubectl logs --timestamps`"
        )
    return line.at


def _value(text: str, number: re.Pattern[str]) -> Decimal | None:
    """Return the number that the pattern finds, or None if there is none or it is not finite."""
    found = number.search(text)
    try:
        value = Decimal(found.group(1).replace(",", "")) if found else None
    except InvalidOperation:
        return None
    return value if value is not None and value.is_finite() else None


def _until(line: _Line, seconds: Decimal) -> Interval:
    """Return the interval of so many seconds before the line."""
    end = _instant(line)
    return Interval(end - timedelta(microseconds=int(seconds * 1_000_000)), end)


def _megatron(lines: Iterator[_Line]) -> Iterator[JobReport]:
    """Yield reports: `iteration 1/50 | elapsed time per iteration (ms): 4500.0 | throughput per GPU (TFLOP/s/GPU): 40 |`."""
    last: int | None = None
    for line in lines:
        found = MEGATRON.search(line.text)
        if not found:
            continue
        step, last = int(found.group("step")), last if last is not None else int(found.group("step")) - 1
        iterations = step - last if step > last else 1  # a restart goes back to its checkpoint
        last = step
        elapsed_ms = _value(line.text, ELAPSED)
        tflops = _value(line.text, THROUGHPUT)
        if elapsed_ms is None or not 0 < elapsed_ms / 1000 < LONGEST_ITERATION:
            continue
        span = _until(line, elapsed_ms / 1000 * iterations)
        yield _flops_report(span, Formula.MEGATRON, tflops, "log without throughput: run with --log-throughput")


def _titan(lines: Iterator[_Line]) -> Iterator[JobReport]:
    """Yield reports: `step: 10  loss: 7.8  memory: 40.2GiB(42%)  tps: 7,500  tflops: 410.2  mfu: 41.47%`."""
    last: tuple[int, datetime] | None = None
    for line in lines:
        found = TITAN.search(line.text)
        if not found:
            continue
        step, end = int(found.group("step")), _instant(line)
        start = last[1] if last and last[0] < step else None
        last = (step, end)
        if start is not None and start < end:
            tflops = _value(line.text, TITAN_TFLOPS)
            problem = "job computed no MFU: it runs quantised" if re.search(r"\bmfu:\s*N/?A", line.text, re.I) else ""
            yield _flops_report(Interval(start, end), Formula.PALM, None if problem else tflops, problem or "no tflops")


def _nemo(lines: Iterator[_Line]) -> Iterator[JobReport]:
    """Yield reports: `Training epoch 0, iteration 4/9 | ... | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03`."""
    for line in lines:
        if not NEMO.search(line.text):
            continue
        seconds = _value(line.text, STEP_SECONDS)
        tflops = _value(line.text, NEMO_TFLOPS)
        if seconds is None or not 0 < seconds < LONGEST_ITERATION:
            continue
        problem = "log without TFLOPS_per_GPU: add FLOPsMeasurementCallback"
        yield _flops_report(_until(line, seconds), Formula.MEGATRON, tflops, problem)


def _flops_report(span: Interval, formula: Formula, tflops: Decimal | None, problem: str) -> JobReport:
    if tflops is None:
        return JobReport(span, formula, problem=problem)
    return JobReport(span, formula, flops_per_second=Fraction(tflops) * 10**12)


def _progress(lines: Iterator[_Line]) -> Iterator[JobReport]:
    """Yield reports: `suanpan-progress {...}` of the push helper."""
    for line in lines:
        found = PUSHED.search(line.text)
        if not found:
            continue
        try:
            progress = msgspec.json.decode(found.group(1), type=Progress)
            span = Interval(progress.start, progress.end)
        except (msgspec.DecodeError, ValueError) as error:
            raise ReportError(f"line {line.number}: {error}") from error
        if not span.microseconds:
            continue
        rate = Fraction(progress.tokens * 1_000_000, span.microseconds)
        yield JobReport(
            span, progress.formula, tokens_per_second=rate, devices=progress.devices, dtype=progress.dtype,
            recomputation=progress.recomputation, shape=progress.model,
        )  # fmt: skip


READERS: Final[Mapping[str, Reader]] = {
    "megatron": _megatron, "torchtitan": _titan, "nemo": _nemo, "progress": _progress,
}  # fmt: skip
"""Readers by kind of log.
Source: NVIDIA/Megatron-LM training.py training_log; pytorch/torchtitan components/metrics.py; NeMo flops_callback.py."""
