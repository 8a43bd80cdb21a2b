"""A job's score is the weighted mean that FM2 says, worked out here in plain fractions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.rating.scores import score_of
from billing.usage.selectors import Sample
from metering.intervals import Interval, union

START = datetime(2026, 10, 1, tzinfo=UTC)
PEAK = {"NVIDIA-H800": Fraction("989.4"), "NVIDIA-A800": Fraction(312)}


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


RATIOS = st.decimals(0, 1, places=4)
SAMPLES = st.builds(
    lambda start, length, gpu, mfu, hfu, coverage, accelerator, pod: Sample(
        "c", "n", "j", accelerator, at(start), at(start + length), gpu, mfu, hfu, "bf16", coverage, pod=pod
    ),
    st.integers(0, 7200), st.integers(0, 3600), st.decimals(0, 90_000, places=3), st.none() | RATIOS, st.none() | RATIOS,
    RATIOS, st.sampled_from(sorted(PEAK)), st.sampled_from(["", "a", "b"]),
)  # fmt: skip
COVERED = st.lists(st.tuples(st.integers(0, 8000), st.integers(1, 4000)), min_size=1, max_size=3).map(
    lambda pieces: union(Interval(at(start), at(start + length)) for start, length in pieces)
)


def rounded(value: Fraction, places: int) -> Decimal:
    return Decimal(round(value * 10**places)).scaleb(-places)


def mean(parts: Sequence[tuple[Sample, Fraction]], metric: str) -> Decimal | None:
    weighed = [
        (Fraction(s.gpu_seconds) * share * PEAK[s.accelerator], getattr(s, metric)) for s, share in parts if s.gpu_seconds
    ]
    if not weighed or any(value is None for _, value in weighed):
        return None
    if len(weighed) == 1:
        return rounded(Fraction(weighed[0][1]), 20)
    weight = sum(weight for weight, _ in weighed)
    return rounded(sum(weight * Fraction(value) for weight, value in weighed) / weight, 20)


def seconds_of(start: datetime, end: datetime) -> set[int]:
    return set(range(int((start - START).total_seconds()), int((end - START).total_seconds())))


def counted_once(samples: Sequence[Sample], covered: set[int]) -> list[tuple[Sample, set[int]]]:
    """Each sample with its covered seconds in which no sample before it measured the same pod or the whole workload."""
    found, known = [], list[tuple[str, set[int]]]()
    for sample in samples:
        own = seconds_of(sample.start, sample.end)
        if sample.mfu is None or sample.hfu is None:
            found.append((sample, own & covered))
            continue
        known_before = [seconds for pod, seconds in known if pod in ("", sample.pod) or not sample.pod]
        found.append((sample, (own & covered).difference(*known_before)))
        known.append((sample.pod, own))
    return found


@given(st.lists(SAMPLES, max_size=4), COVERED, st.decimals(0, 90_000, places=6))
def test_a_score_is_the_plain_weighted_mean(samples: list[Sample], covered: list[Interval], held: Decimal) -> None:
    under = set().union(*(seconds_of(piece.start, piece.end) for piece in covered))
    once = [(sample, inside) for sample, inside in counted_once(samples, under) if inside]
    parts = [part for part in once if part[0].mfu is not None and part[0].hfu is not None] or once
    shares = [(sample, Fraction(len(inside), len(seconds_of(sample.start, sample.end)))) for sample, inside in parts]
    seconds = sum((Fraction(s.gpu_seconds) * Fraction(s.coverage) * part for s, part in shares), Fraction(0))
    score = score_of(samples, covered, held)
    assert score.minutes == rounded(Fraction(len(set().union(*(inside for _, inside in parts))), 60), 6)
    part = seconds / Fraction(held) if held else Fraction(0)
    assert score.coverage == (rounded(part, 12) if part > Fraction(5, 4) else min(rounded(part, 12), 1))
    capped = score_of(samples, covered, held, capped=True)
    assert capped.coverage == min(rounded(part, 12), 1)
    assert (score.mfu, score.hfu) == (mean(shares, "mfu"), mean(shares, "hfu"))
