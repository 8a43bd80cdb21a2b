"""Token prices: what cannot be priced is refused, and what is priced recovers its cost."""

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.token_price import (
    LatencyBounds,
    LoadPoint,
    LoadPointError,
    cost_per_million,
    price_per_million,
    ratio_costs,
    sustainable_point,
)

BOUNDS = LatencyBounds(Fraction(500), Fraction(80))


def run(offered: int, ttft: int) -> LoadPoint:
    return LoadPoint(*map(Fraction, (offered, offered, offered * 1000, offered * 100, ttft, 30, 0)))


def test_seed_example_is_six_point_six_six_six_seven() -> None:
    assert price_per_million(cost_per_million(10, 500), Decimal("0.20")) == Decimal("6.6667")


@pytest.mark.parametrize("tokens_per_second", [0, -1])
def test_no_throughput_prices_nothing(tokens_per_second: int) -> None:
    with pytest.raises(LoadPointError, match="above 0"):
        cost_per_million(10, tokens_per_second)


@pytest.mark.parametrize("utilisation", ["0", "1.01", "-0.5"])
def test_utilisation_is_a_ratio(utilisation: str) -> None:
    with pytest.raises(LoadPointError, match="utilisation"):
        cost_per_million(10, 500, Decimal(utilisation))


def test_a_float_is_refused() -> None:
    with pytest.raises(TypeError):
        cost_per_million(10.0, 500)  # type: ignore[arg-type]


def test_runs_are_ordered_by_offered_rate_whatever_the_file_says() -> None:
    assert sustainable_point([run(6, 640), run(4, 260), run(5, 410)], BOUNDS).offered_rps == 5


def test_a_load_test_without_a_passing_run_has_no_sustainable_point() -> None:
    with pytest.raises(LoadPointError):
        sustainable_point([run(1, 900)], BOUNDS)


def test_an_empty_mix_prices_nothing() -> None:
    with pytest.raises(LoadPointError):
        ratio_costs(10, uncached_tps=0, output_tps=0)
