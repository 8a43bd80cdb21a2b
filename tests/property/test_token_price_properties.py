"""The methods of token prices move with each input as they must, and refuse units that are not theirs."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.token_price import (
    ClassCosts,
    MeasuredRun,
    cost_per_million,
    fit_gpu_seconds,
    output_only_costs,
    phase_costs,
    ratio_costs,
)
from pricing.token_sheet import TokenSheetError, parse_token_sheet

rates = st.integers(1, 10**5)
Method = Callable[..., ClassCosts]
BASE: dict[str, Any] = {"gpu_hour_cost": Fraction(10), "uncached_tps": 2000, "cached_tps": 3000, "output_tps": 500}
RATIO: dict[str, Any] = {**BASE, "output_ratio": Fraction(4), "cached_ratio": Fraction(1, 10)}
PHASE: dict[str, Any] = {**BASE, "prefill_share": Fraction(1, 4), "cached_ratio": Fraction(1, 10)}
MOVES = [
    # what a greater input does to the cost of (uncached input, cached input, output)
    (ratio_costs, RATIO, "gpu_hour_cost", "+++"),
    (ratio_costs, RATIO, "uncached_tps", "---"),
    (ratio_costs, RATIO, "cached_tps", "---"),
    (ratio_costs, RATIO, "output_tps", "---"),
    (ratio_costs, RATIO, "output_ratio", "--+"),
    (ratio_costs, RATIO, "cached_ratio", "-+-"),
    (phase_costs, PHASE, "gpu_hour_cost", "+++"),
    (phase_costs, PHASE, "uncached_tps", "--="),
    (phase_costs, PHASE, "cached_tps", "--="),
    (phase_costs, PHASE, "output_tps", "==-"),
    (phase_costs, PHASE, "prefill_share", "++-"),
    (phase_costs, PHASE, "cached_ratio", "-+="),
]


def called(method: Method, inputs: dict[str, Any]) -> tuple[Fraction, Fraction, Fraction]:
    cost = inputs["gpu_hour_cost"]
    found = method(cost, **{name: value for name, value in inputs.items() if name != "gpu_hour_cost"})
    return found.input, found.cache_read, found.output


@pytest.mark.parametrize(
    ("method", "inputs", "field", "moves"), MOVES, ids=[f"{method.__name__}-{field}" for method, _, field, _ in MOVES]
)
@given(factor=st.fractions(Fraction(11, 10), 3))
def test_a_class_moves_with_each_input_as_it_must(
    method: Method, inputs: dict[str, Any], field: str, moves: str, factor: Fraction
) -> None:
    greater = called(method, {**inputs, field: inputs[field] * factor})
    for move, before, after in zip(moves, called(method, inputs), greater, strict=True):
        assert {"+": after > before, "-": after < before, "=": after == before}[move]


@given(rates, rates, st.fractions(Fraction(1, 100), 1))
def test_less_speed_or_less_use_costs_more(speed: int, more: int, share: Fraction) -> None:
    assert cost_per_million(10, speed + more) < cost_per_million(10, speed)
    costs = output_only_costs(10, output_tps=speed)
    assert costs.at_utilisation(share).output * share == costs.output
    assert costs.input == 0


RUNS = [MeasuredRun(Fraction(fresh), Fraction(cached), Fraction(out), Fraction(50 * fresh + 5 * cached + 500 * out))
        for fresh, cached, out in ((10, 1, 1), (1, 12, 1), (2, 3, 4), (5, 1, 2), (1, 1, 6))]  # fmt: skip


@given(st.fractions(Fraction(1, 100), 100), st.fractions(Fraction(11, 10), 10))
def test_fitted_costs_follow_the_measured_time_and_the_cost_of_the_hour(cost: Fraction, factor: Fraction) -> None:
    """50, 5 and 500 GPU-seconds per million by construction: 50 x C / 3600 for a million of uncached input."""
    fit = fit_gpu_seconds(RUNS)
    assert fit.costs(cost) == ClassCosts(50 * cost / 3600, 5 * cost / 3600, 500 * cost / 3600)
    slower = [MeasuredRun(run.input_millions, run.cached_millions, run.output_millions, run.gpu_seconds * factor)
              for run in RUNS]  # fmt: skip
    assert fit_gpu_seconds(slower).costs(cost) == fit.costs(cost * factor) == fit.costs(cost).times(factor)


@given(
    st.sampled_from(["serving_utilisation", "max_error_rate", "min_completed_ratio", "markup", "cache_read_ratio"]),
    st.integers(3, 100),
)
def test_percents_are_refused_where_ratios_belong(field: str, percent: int) -> None:
    with pytest.raises(TokenSheetError) as refused:
        parse_token_sheet({field: percent})
    (message,) = [message for message in refused.value.messages if message.startswith(f"{field}: ")]
    assert message.startswith(f"{field}: {percent} must be a number")
    assert "% is 0." in message
