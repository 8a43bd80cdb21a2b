"""Token prices: what cannot be priced is refused, and what is priced recovers its cost."""

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.token_price import (
    LatencyBounds,
    LoadPoint,
    LoadPointError,
    MeasuredRun,
    cost_per_million,
    fit_gpu_seconds,
    output_only_costs,
    phase_costs,
    ratio_costs,
    sustainable_point,
)

BOUNDS = LatencyBounds(Fraction(500), Fraction(80))


def run(offered: int, ttft: int) -> LoadPoint:
    return LoadPoint(*map(Fraction, (offered, offered, offered * 1000, offered * 100, ttft, 30, 0)))


@pytest.mark.parametrize("tokens_per_second", [0, -1])
def test_no_throughput_prices_nothing(tokens_per_second: int) -> None:
    with pytest.raises(LoadPointError, match="above 0"):
        cost_per_million(10, tokens_per_second)


@pytest.mark.parametrize("utilisation", ["0", "1.01", "-0.5"])
def test_utilisation_is_a_ratio(utilisation: str) -> None:
    with pytest.raises(LoadPointError, match="utilisation"):
        output_only_costs(10, output_tps=500).at_utilisation(Decimal(utilisation))


def test_a_float_is_refused() -> None:
    with pytest.raises(TypeError):
        cost_per_million(10.0, 500)  # type: ignore[arg-type]


def test_runs_are_ordered_by_offered_rate_whatever_the_file_says() -> None:
    assert sustainable_point([run(6, 640), run(4, 260), run(5, 410)], BOUNDS).offered_rps == 5


def test_an_empty_mix_prices_nothing() -> None:
    with pytest.raises(LoadPointError):
        ratio_costs(10, uncached_tps=0, output_tps=0)


def test_a_single_broken_bound_is_said_in_words() -> None:
    point = LoadPoint(*map(Fraction, (10, 9, 1, 1, 501, 81, "0.02")), duration_s=Fraction(60))
    assert BOUNDS.broken(point) == [
        "TTFT p99 501 > 500 ms", "TPOT p99 81 > 80 ms", "error rate 0.02 > 0.01", "completed 9 < 9.9 requests/s",
        "duration 60 < 600 s",
    ]  # fmt: skip


def test_values_at_their_bounds_pass() -> None:
    assert not BOUNDS.broken(LoadPoint(*map(Fraction, (100, 99, 1, 1, 500, 80, "0.01")), duration_s=Fraction(600)))


def test_a_load_test_without_runs_has_no_point() -> None:
    with pytest.raises(LoadPointError, match="no runs"):
        sustainable_point([], BOUNDS)


def test_a_phase_with_time_needs_tokens() -> None:
    with pytest.raises(LoadPointError, match="decode takes GPU time"):
        phase_costs(10, prefill_share=Decimal("0.5"), uncached_tps=100, output_tps=0)
    prefill_only = phase_costs(10, prefill_share=1, uncached_tps=500, output_tps=0)
    assert (prefill_only.input, prefill_only.output) == (Fraction(50, 9), 0)
    with pytest.raises(LoadPointError, match="from 0 to 1"):
        phase_costs(10, prefill_share=25, uncached_tps=100, output_tps=100)


def shapes(*rows: tuple[int, int, int, int]) -> list[MeasuredRun]:
    return [MeasuredRun(*map(Fraction, row)) for row in rows]


def test_runs_of_one_shape_say_nothing_about_the_classes() -> None:
    with pytest.raises(LoadPointError, match="distinguish the token classes"):
        fit_gpu_seconds(shapes((10, 0, 1, 100), (20, 0, 2, 200), (30, 0, 3, 300), (40, 0, 4, 400)))
    with pytest.raises(LoadPointError, match="too alike"):
        fit_gpu_seconds(shapes((1000, 0, 100, 100), (2000, 0, 201, 200), (3000, 0, 300, 300), (4000, 0, 401, 400)))


def test_a_fit_that_misses_the_measured_time_is_refused() -> None:
    with pytest.raises(LoadPointError, match="more than 10 %"):
        fit_gpu_seconds(shapes((10, 0, 1, 1000), (10, 0, 1, 100), (1, 0, 10, 5000), (1, 0, 10, 500)))


def test_a_class_never_has_a_negative_cost() -> None:
    fitted = fit_gpu_seconds(shapes((10, 0, 1, 100), (1, 0, 10, 1010), (5, 0, 5, 490), (2, 0, 8, 805)))
    assert fitted.input == 0
    assert fitted.output > 0


def test_without_cached_input_its_ratio_is_a_matter_of_policy() -> None:
    fitted = fit_gpu_seconds(shapes((10, 0, 1, 1000), (4, 0, 2, 1200), (1, 0, 3, 1550), (20, 0, 1, 1500)), Decimal("0.25"))
    assert (fitted.input, fitted.cache_read, fitted.output) == (50, Fraction(25, 2), 500)
