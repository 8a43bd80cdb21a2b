"""PURE: cost of a GPU-hour and a measured throughput -> price of a million tokens.

FS7: c = C_h x 10^6 / (3600 x X), with C_h the cost (not the price) of a GPU-hour and X tokens/s per GPU at the
sustainable load. The ratio method spreads C_h over all tokens of the measured mix, so that prices recover it exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pricing.money import Number, fraction_of, round_price

SECONDS_PER_HOUR: Final = 3600
MILLION: Final = 1_000_000


class LoadPointError(ValueError):
    """A load point that prices nothing, or a load test without a sustainable one."""


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One run of a load test; rates in requests/s and tokens/s of the whole deployment, latencies in ms."""

    offered_rps: Fraction
    completed_rps: Fraction
    input_tps: Fraction
    output_tps: Fraction
    ttft_p99_ms: Fraction
    tpot_p99_ms: Fraction
    error_rate: Fraction
    cached_input_tps: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class LatencyBounds:
    """What a sustainable load must keep: upper bounds, and the least share of offered requests that complete."""

    ttft_p99_ms: Fraction
    tpot_p99_ms: Fraction
    error_rate: Fraction = Fraction(1, 100)
    completed_over_offered: Fraction = Fraction(99, 100)

    def hold(self, point: LoadPoint) -> bool:
        """Whether the run keeps every bound."""
        return (
            point.ttft_p99_ms <= self.ttft_p99_ms
            and point.tpot_p99_ms <= self.tpot_p99_ms
            and point.error_rate <= self.error_rate
            and point.completed_rps >= self.completed_over_offered * point.offered_rps
        )


def sustainable_point(points: Sequence[LoadPoint], bounds: LatencyBounds) -> LoadPoint:
    """The last run of the passing prefix by offered rate (FT1); a later pass, won by shedding load, is void.

    Raises LoadPointError if the first run fails already.
    """
    selected: LoadPoint | None = None
    for point in sorted(points, key=lambda point: point.offered_rps):
        if not bounds.hold(point):
            break
        selected = point
    if selected is None:
        raise LoadPointError("no run keeps the bounds at the lowest offered rate")
    return selected


def cost_per_million(gpu_hour_cost: Number, tokens_per_second: Number, serving_utilisation: Number = 1) -> Fraction:
    """FS7 with FT3: cost of 1M tokens at `tokens_per_second` per GPU, of which a share is really served.

    >>> cost_per_million(10, 500)
    Fraction(50, 9)

    Raises LoadPointError if the throughput is not positive or the utilisation is not in (0, 1].
    """
    throughput, used = fraction_of(tokens_per_second), fraction_of(serving_utilisation)
    if throughput <= 0:
        raise LoadPointError(f"tokens per second {tokens_per_second} must be above 0")
    if not 0 < used <= 1:
        raise LoadPointError(f"serving utilisation {serving_utilisation} must be above 0 and at most 1")
    return fraction_of(gpu_hour_cost) * MILLION / (SECONDS_PER_HOUR * throughput * used)


def price_per_million(cost: Number, markup: Number) -> Decimal:
    """List price of 1M tokens: cost x (1 + markup), rounded once to 4 decimals.

    >>> price_per_million(Fraction(50, 9), Decimal("0.20"))
    Decimal('6.6667')
    """
    return round_price(fraction_of(cost) * (1 + fraction_of(markup)))


def cost_inside_price(price: Number, markup: Number) -> Fraction:
    """The cost behind a price that contains a markup already, so that no second markup comes on top.

    >>> cost_inside_price(10, Decimal("0.20"))
    Fraction(25, 3)
    """
    return fraction_of(price) / (1 + fraction_of(markup))


@dataclass(frozen=True, slots=True)
class ClassCosts:
    """Cost of 1M tokens by class."""

    input: Fraction
    cache_read: Fraction
    output: Fraction


def ratio_costs(
    gpu_hour_cost: Number,
    *,
    uncached_tps: Number,
    cached_tps: Number = 0,
    output_tps: Number,
    output_ratio: Number = 4,
    cached_ratio: Number = Fraction(1, 10),
) -> ClassCosts:
    """Method R: c_in = C_h / 3600 / (X_u + q X_c + r X_o); cached input costs q, output r times as much.

    >>> ratio_costs(10, uncached_tps=5000, output_tps=500).output
    Fraction(100, 63)
    """
    r, q = fraction_of(output_ratio), fraction_of(cached_ratio)
    weighted = fraction_of(uncached_tps) + q * fraction_of(cached_tps) + r * fraction_of(output_tps)
    if weighted <= 0:
        raise LoadPointError("the load point has no tokens")
    per_input = fraction_of(gpu_hour_cost) * MILLION / (SECONDS_PER_HOUR * weighted)
    return ClassCosts(per_input, q * per_input, r * per_input)


def token_fee(price_per_1m: Number, tokens: int) -> Fraction:
    """FS8 for one class: price x tokens / 10^6, exact; the line rounds it once.

    >>> token_fee(Decimal("2.0000"), 1_234_567)
    Fraction(1234567, 500000)
    """
    return fraction_of(price_per_1m) * tokens / MILLION
