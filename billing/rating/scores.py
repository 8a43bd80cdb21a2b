"""PURE: scores of a job from its samples: measured minutes, coverage, and MFU and HFU weighted by FM2.

Samples that a policy covers only in part count by the part of their time that it covers. Time that was measured twice counts
once, except in months that were closed by older rules (`billing.rating.rules`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import msgspec

from billing.usage.selectors import Sample
from metering.intervals import MICROSECOND, Interval, union, without
from metering.peaks import dense_peak_tflops
from pricing import efficiency
from pricing.money import EXACT, exact_sum

MICRO = 1_000_000
METRIC_PLACES, COVERAGE_PLACES, MINUTE_PLACES = 20, 12, 6
MOST_COVERED = Fraction(5, 4)
"""Highest plausible ratio of measured to allocated time: rounding to minutes adds less than a quarter to a judged job."""
ONE = Decimal(1)
NOTHING, EVERYTHING = Decimal("0.000000000000"), Decimal("1.000000000000")


class Score(msgspec.Struct, frozen=True, gc=False):
    """Measured minutes, measured share of the allocated GPU-seconds, and the weighted means."""

    minutes: Decimal
    coverage: Decimal
    mfu: Decimal | None
    hfu: Decimal | None

    def facts(self, held: Decimal) -> dict[str, Any]:
        """Return the figures by which a policy judges."""
        return {
            "gpu_seconds": held, "minutes": self.minutes, "coverage": self.coverage, "mfu": self.mfu, "hfu": self.hfu,
        }  # fmt: skip


class _Part(msgspec.Struct, frozen=True, gc=False):
    """A sample with the microseconds of its `whole` time that lie `inside` the time under the policy."""

    sample: Sample
    inside: int
    whole: int

    def share_of(self, value: Decimal) -> Decimal | Fraction:
        """Return the part of a value that falls inside."""
        return value if self.inside == self.whole else Fraction(value) * Fraction(self.inside, self.whole)


def score_of(
    samples: Sequence[Sample], covered: Sequence[Interval], held_seconds: Decimal, *, once: bool = True, capped: bool = False
) -> Score:
    """Weigh samples by GPU-seconds x dense peak; coverage is measured over allocated GPU-seconds.

    A sample without both values covers nothing: one hour that could not be measured costs coverage, not the score. `once`:
    time that was measured twice counts once. `capped`: coverage is at most 1, however much more was measured than allocated.
    """
    counted = _once(samples, covered) if once else [(sample, covered) for sample in samples]
    overlapping = [part for sample, times in counted if (part := _part(sample, times)).inside]
    # if no sample has both values all count, and the mean of a missing value is None
    parts = [part for part in overlapping if part.sample.mfu is not None and part.sample.hfu is not None] or overlapping
    measured_s: Decimal | Fraction = Decimal(0)
    for part in parts:
        measured_s = exact_sum(measured_s, part.share_of(EXACT.multiply(part.sample.gpu_seconds, part.sample.coverage)))
    minutes = _rounded(_busy(parts, covered), 60 * MICRO, MINUTE_PLACES)
    weights = _weights([part for part in parts if part.sample.gpu_seconds])
    return Score(minutes, _coverage(measured_s, held_seconds, capped), _mean(weights, "mfu"), _mean(weights, "hfu"))


def _once(samples: Sequence[Sample], covered: Sequence[Interval]) -> Iterable[tuple[Sample, Sequence[Interval]]]:
    """Return each sample with the time in which it counts: of time that was measured twice, the first report counts.

    A pod is measured twice where two samples of it overlap, or one of it and one of its workload.
    """
    if not _overlap(samples):
        return [(sample, covered) for sample in samples]  # most jobs
    found: list[tuple[Sample, Sequence[Interval]]] = []
    measured: dict[tuple[str, str], dict[str, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if sample.mfu is None or sample.hfu is None:
            found.append((sample, covered))
            continue
        by_pod = measured[sample.namespace, sample.job]
        before = [*by_pod[sample.pod], *by_pod[""]] if sample.pod else chain.from_iterable(by_pod.values())
        found.append((sample, without(covered, before)))
        by_pod[sample.pod] = union([*by_pod[sample.pod], Interval(sample.start, sample.end)])
    return found


def _overlap(samples: Sequence[Sample]) -> bool:
    """Return True if time may have been measured twice, also if samples came out of order."""
    ends: dict[tuple[str, str, str], Any] = {}
    for sample in samples:
        name = (sample.namespace, sample.job, sample.pod)
        if name in ends and sample.start < ends[name]:
            return True
        ends[name] = sample.end
    return any(pod and (namespace, job, "") in ends for namespace, job, pod in ends)


def _part(sample: Sample, covered: Sequence[Interval]) -> _Part:
    whole = (sample.end - sample.start) // MICROSECOND
    if len(covered) == 1 and covered[0].start <= sample.start < sample.end <= covered[0].end:
        return _Part(sample, whole, whole)  # most samples
    return _Part(sample, sum(cut.microseconds for cut in _cuts(sample, covered)), whole)


def _cuts(sample: Sample, covered: Sequence[Interval]) -> list[Interval]:
    time = Interval(sample.start, sample.end)
    return [cut for piece in covered if (cut := time.overlap(piece))]


def _busy(parts: Sequence[_Part], covered: Sequence[Interval]) -> int:
    """Return the microseconds in which at least one sample measured."""
    if len(parts) == 1:
        return parts[0].inside
    return sum(piece.microseconds for piece in union([cut for part in parts for cut in _cuts(part.sample, covered)]))


def _coverage(measured_s: Decimal | Fraction, held_seconds: Decimal, capped: bool) -> Decimal:
    """Return measured over allocated time; a small excess is rounding at both ends, a large one double counting."""
    if not held_seconds:
        return NOTHING
    if measured_s >= held_seconds and (capped or Fraction(measured_s) <= Fraction(held_seconds) * MOST_COVERED):
        return EVERYTHING
    top, bottom = measured_s.as_integer_ratio(), held_seconds.as_integer_ratio()
    return _rounded(top[0] * bottom[1], top[1] * bottom[0], COVERAGE_PLACES)


def _weights(parts: Sequence[_Part]) -> list[tuple[Sample, Decimal | Fraction, Decimal]] | None:
    """Return samples with GPU-seconds and dense peak; None if precisions differ and the peak of one is unknown.

    With a single precision its peak cancels out, known or not.
    """
    precisions = {(part.sample.accelerator, part.sample.dtype) for part in parts}
    peaks = {one: dense_peak_tflops(*one) for one in precisions} if len(precisions) > 1 else {}
    if None in peaks.values():
        return None
    return [
        (part.sample, part.share_of(part.sample.gpu_seconds), peaks.get((part.sample.accelerator, part.sample.dtype)) or ONE)
        for part in parts
    ]


def _mean(weights: Sequence[tuple[Sample, Decimal | Fraction, Decimal]] | None, metric: str) -> Decimal | None:
    """Return the weighted mean of a metric with 20 decimals; None if a sample has no value of it."""
    parts = [(seconds, peak, getattr(sample, metric)) for sample, seconds, peak in weights or ()]
    if any(value is None for _, _, value in parts):
        return None
    mean = efficiency.weighted_mean(parts)
    return None if mean is None else _rounded(*mean.as_integer_ratio(), METRIC_PLACES)


def _rounded(numerator: int, denominator: int, places: int) -> Decimal:
    """Divide two integers and round to `places` decimals, half to even."""
    units, rest = divmod(numerator * 10**places, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and units % 2):
        units += 1
    return EXACT.scaleb(Decimal(units), -places)
