"""PURE: price of a million tokens from the cost of a GPU-hour and a measured throughput.

FS7: c = C_h x 10^6 / (3600 x X), with C_h the cost (not the price) of a GPU-hour and X tokens/s per GPU at the
sustainable load. A method spreads C_h over the classes of tokens; each recovers it exactly at the measured mix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metering.messages import Message, UserError
from pricing.least_squares import CollinearError, Fit, fit_non_negative
from pricing.money import Number, fraction_of
from pricing.number_text import short_text

SECONDS_PER_HOUR: Final = 3600
MILLION: Final = 1_000_000
LARGEST_CONDITION: Final = 30
LEAST_RUNS: Final = 4
LARGEST_RESIDUAL: Final = Fraction(1, 10)
OUTPUT_RATIO: Final = 4
CACHED_RATIO: Final = Fraction(1, 10)
"""Default ratios (policy): output costs about four times, cached input a tenth of uncached input."""


class LoadPointError(UserError, ValueError):
    """Load point that gives no price, or load test without a sustainable one."""

    code = "load_point"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Run of a load test; rates in requests/s and tokens/s of the whole deployment, latencies in ms.

    `input_tps` counts all input, cached included, as the usage objects of inference engines do.
    """

    offered_rps: Fraction
    completed_rps: Fraction
    input_tps: Fraction
    output_tps: Fraction
    ttft_p99_ms: Fraction
    tpot_p99_ms: Fraction
    error_rate: Fraction
    cached_input_tps: Fraction = Fraction(0)
    duration_s: Fraction | None = None

    @property
    def uncached_input_tps(self) -> Fraction:
        """Return the rate of input that was computed, not read from the cache."""
        return self.input_tps - self.cached_input_tps


@dataclass(frozen=True, slots=True)
class LatencyBounds:
    """Bounds of a sustainable load: upper bounds, the least share of requests that complete, the least duration."""

    ttft_p99_ms: Fraction
    tpot_p99_ms: Fraction
    error_rate: Fraction = Fraction(1, 100)
    completed_over_offered: Fraction = Fraction(99, 100)
    min_duration_s: Fraction = Fraction(600)

    def broken(self, point: LoadPoint) -> list[str]:
        """Return the bounds that the run breaks, in words."""
        least = self.completed_over_offered * point.offered_rps
        short = point.duration_s is not None and point.duration_s < self.min_duration_s
        checks = (
            (point.ttft_p99_ms > self.ttft_p99_ms, "TTFT p99", point.ttft_p99_ms, ">", self.ttft_p99_ms, " ms"),
            (point.tpot_p99_ms > self.tpot_p99_ms, "TPOT p99", point.tpot_p99_ms, ">", self.tpot_p99_ms, " ms"),
            (point.error_rate > self.error_rate, "error rate", point.error_rate, ">", self.error_rate, ""),
            (point.completed_rps < least, "completed", point.completed_rps, "<", least, " requests/s"),
            (short, "duration", point.duration_s or 0, "<", self.min_duration_s, " s"),
        )
        return [
            f"{what} {short_text(value, 4)} {sign} {short_text(bound, 4)}{unit}"
            for broken, what, value, sign, bound, unit in checks
            if broken
        ]


def passing_prefix(points: Sequence[LoadPoint], bounds: LatencyBounds) -> list[LoadPoint]:
    """Return the runs below the lowest offered rate at which a run failed; a later pass, won by shedding load, is void.

    A rate fails with any of its runs: two runs at one rate have no order.  Source: FT1, sustainable point.
    """
    failed = min((point.offered_rps for point in points if bounds.broken(point)), default=None)
    return [point for point in points if failed is None or point.offered_rps < failed]


def sustainable_point(points: Sequence[LoadPoint], bounds: LatencyBounds) -> LoadPoint:
    """Return the run at the highest rate of the passing prefix.

    Raises LoadPointError if the lowest rate fails already.  Source: FT1, sustainable point; DistServe's goodput.
    """
    passing = passing_prefix(points, bounds)
    if passing:
        return deciding_point(passing)
    if not points:
        raise LoadPointError(Message("the load test has no runs"))
    first = min((point for point in points if bounds.broken(point)), key=_by_rate_and_tokens)
    broken = "; ".join(bounds.broken(first))
    raise LoadPointError(Message(
        "no run keeps the bounds at the lowest offered rate %(offered_rps)s: %(broken)s",
        offered_rps=short_text(first.offered_rps, 4), broken=broken,
    ))


def deciding_point(points: Sequence[LoadPoint]) -> LoadPoint:
    """Return the run at the highest offered rate; of several, the one with the fewest tokens, in any order of the input."""
    highest = max(point.offered_rps for point in points)
    return min((point for point in points if point.offered_rps == highest), key=_by_rate_and_tokens)


def _by_rate_and_tokens(point: LoadPoint) -> tuple[Fraction, ...]:
    return (
        point.offered_rps, point.output_tps, point.uncached_input_tps, point.cached_input_tps, point.completed_rps,
        point.ttft_p99_ms, point.tpot_p99_ms, point.error_rate, point.duration_s or Fraction(0),
    )  # fmt: skip


def cost_per_million(gpu_hour_cost: Number, tokens_per_second: Number) -> Fraction:
    """Return the cost of 1M tokens at `tokens_per_second` per GPU.

    c [currency/1M tok] = C_h [currency/GPU-h] x 10^6 / (3600 [s/h] x X [tok/s/GPU])

    >>> cost_per_million(10, 500)
    Fraction(50, 9)

    Raises LoadPointError if the throughput is not positive.  Source: FS7, derived from load-tested throughput.
    """
    throughput = fraction_of(tokens_per_second)
    if throughput <= 0:
        raise LoadPointError(Message(
            "tokens per second %(tokens_per_second)s must be above 0", tokens_per_second=tokens_per_second
        ))
    return fraction_of(gpu_hour_cost) * MILLION / (SECONDS_PER_HOUR * throughput)


@dataclass(frozen=True, slots=True)
class ClassCosts:
    """Cost of 1M tokens by class."""

    input: Fraction
    cache_read: Fraction
    output: Fraction

    def at_utilisation(self, used: Number) -> "ClassCosts":
        """Return the costs where only a share of the sustainable load is served.  Raises LoadPointError.

        A fleet that scales pays for what it provisions: the share is average over peak provisioned capacity.
        Source: FT3, serving utilisation.
        """
        share = fraction_of(used)
        if not 0 < share <= 1:
            raise LoadPointError(Message("serving utilisation %(used)s must be above 0 and at most 1", used=used))
        return self.times(1 / share)

    def times(self, factor: Fraction) -> "ClassCosts":
        """Multiply every class by the same factor."""
        return ClassCosts(self.input * factor, self.cache_read * factor, self.output * factor)

    def recovered_per_hour(self, *, uncached_tps: Number, cached_tps: Number = 0, output_tps: Number) -> Fraction:
        """Return the revenue of these costs from an hour of such a mix; at the calibrated mix of one GPU, exactly C_h."""
        per_second = (
            self.input * fraction_of(uncached_tps)
            + self.cache_read * fraction_of(cached_tps)
            + self.output * fraction_of(output_tps)
        )
        return per_second * SECONDS_PER_HOUR / MILLION


def ratio_costs(
    gpu_hour_cost: Number,
    *,
    uncached_tps: Number,
    cached_tps: Number = 0,
    output_tps: Number,
    output_ratio: Number = OUTPUT_RATIO,
    cached_ratio: Number = CACHED_RATIO,
) -> ClassCosts:
    """Split by method R, fixed ratios: cached input costs q, output r times as much as uncached input.

    c_in [currency/1M tok] = C_h x 10^6 / 3600 / (X_u + q X_c + r X_o)

    >>> ratio_costs(10, uncached_tps=5000, output_tps=500).output
    Fraction(100, 63)

    Raises LoadPointError if there are no tokens.  Source: FT2, fixed ratio.
    """
    r, q = fraction_of(output_ratio), fraction_of(cached_ratio)
    weighted = fraction_of(uncached_tps) + q * fraction_of(cached_tps) + r * fraction_of(output_tps)
    if weighted <= 0:
        raise LoadPointError(Message("the load point has no tokens"))
    per_input = fraction_of(gpu_hour_cost) * MILLION / (SECONDS_PER_HOUR * weighted)
    return ClassCosts(per_input, q * per_input, r * per_input)


def output_only_costs(gpu_hour_cost: Number, *, output_tps: Number) -> ClassCosts:
    """Put all cost on output: for SKUs that sell output only, because it makes others pay for long prompts.

    >>> output_only_costs(10, output_tps=500)
    ClassCosts(input=Fraction(0, 1), cache_read=Fraction(0, 1), output=Fraction(50, 9))

    Source: FT2, output-only baseline.
    """
    return ClassCosts(Fraction(0), Fraction(0), cost_per_million(gpu_hour_cost, output_tps))


def phase_costs(
    gpu_hour_cost: Number,
    *,
    prefill_share: Number,
    uncached_tps: Number,
    cached_tps: Number = 0,
    output_tps: Number,
    cached_ratio: Number = CACHED_RATIO,
) -> ClassCosts:
    """Split by method T, phase time: input pays the share of GPU time spent in prefill, output the rest.

    c_in = C_h sigma_p x 10^6 / 3600 / (X_u + q X_c),  c_o = C_h (1 - sigma_p) x 10^6 / 3600 / X_o

    sigma_p comes from the timers of the engine, or from the separate throughput of each phase: (in / X_p) over
    (in / X_p + out / X_d).

    >>> phase_costs(10, prefill_share=Fraction(1, 4), uncached_tps=2500, output_tps=500)
    ClassCosts(input=Fraction(5, 18), cache_read=Fraction(1, 36), output=Fraction(25, 6))

    Raises LoadPointError where a phase has time but no tokens.  Source: FT2, phase time; Splitwise, arXiv 2311.18677.
    """
    share, q = fraction_of(prefill_share), fraction_of(cached_ratio)
    if not 0 <= share <= 1:
        raise LoadPointError(Message("prefill share %(prefill_share)s must be from 0 to 1", prefill_share=prefill_share))
    cost = fraction_of(gpu_hour_cost)
    per_input = _phase(cost * share, fraction_of(uncached_tps) + q * fraction_of(cached_tps), "prefill")
    return ClassCosts(per_input, q * per_input, _phase(cost * (1 - share), fraction_of(output_tps), "decode"))


def _phase(cost: Fraction, tokens_per_second: Fraction, name: str) -> Fraction:
    if not cost:
        return Fraction(0)
    if tokens_per_second <= 0:
        raise LoadPointError(Message("%(name)s takes GPU time but the load point has no tokens of it", name=name))
    return cost_per_million(cost, tokens_per_second)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Tokens that a run processed, in millions, and its GPU-seconds."""

    input_millions: Fraction
    cached_millions: Fraction
    output_millions: Fraction
    gpu_seconds: Fraction


@dataclass(frozen=True, slots=True)
class FittedSeconds:
    """GPU-seconds per 1M tokens of each class as fitted, before scaling to the measured time."""

    input: Fraction
    cache_read: Fraction
    output: Fraction
    fit: Fit

    def costs(self, gpu_hour_cost: Number) -> ClassCosts:
        """Return costs that recover the measured GPU time of all runs exactly."""
        per_second = fraction_of(gpu_hour_cost) / SECONDS_PER_HOUR
        return ClassCosts(self.input, self.cache_read, self.output).times(per_second * self.fit.recovery_scale)


def fit_gpu_seconds(runs: Sequence[MeasuredRun], cached_ratio: Number = CACHED_RATIO) -> FittedSeconds:
    """Fit method L, least squares: GPU-seconds = a x input + k x cached + b x output over runs of varied shape.

    Without cached input in any run, k is `cached_ratio` x a.  Raises LoadPointError for too few runs, for shapes too
    alike (condition number above 30) and for a fit that misses the measured time by more than 10 %.

    Source: FT2, least squares.
    """
    with_cache = any(run.cached_millions for run in runs)
    rows = [
        (run.input_millions, *((run.cached_millions,) if with_cache else ()), run.output_millions) for run in runs
    ]
    if len(rows) < LEAST_RUNS:
        raise LoadPointError(Message(
            "least squares needs %(least)s runs of varied shape, there are %(rows)s", least=LEAST_RUNS, rows=len(rows)
        ))
    try:
        fit = fit_non_negative(rows, [run.gpu_seconds for run in runs])
    except CollinearError as error:
        raise LoadPointError(error.message) from error
    # compared squared: the root of a rational is not exact
    if fit.condition_squared > LARGEST_CONDITION**2:
        raise LoadPointError(Message(
            "the runs are too alike (condition number above 30): vary the ratio of input to output"
        ))
    if fit.residual_squared > LARGEST_RESIDUAL**2:
        raise LoadPointError(Message(
            "the fit misses the measured GPU time by more than 10 %: the runs are not equally loaded"
        ))
    a, *k, b = fit.coefficients
    return FittedSeconds(a, k[0] if k else a * fraction_of(cached_ratio), b, fit)
