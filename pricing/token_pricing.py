"""PURE: the sustainable run of load tests, and cost and price of 1M tokens by class at that run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pricing.loadtests.own import NAMES, LoadRun, LoadTest, merge_load_tests, refuse_differences
from pricing.money import exact_decimal, round_price
from pricing.token_price import (
    MILLION,
    ClassCosts,
    LatencyBounds,
    LoadPoint,
    MeasuredRun,
    deciding_point,
    fit_gpu_seconds,
    output_only_costs,
    passing_prefix,
    phase_costs,
    ratio_costs,
    sustainable_point,
)


@dataclass(frozen=True)
class TokenTerms:
    """Terms of token pricing: the cost of a GPU-hour, the latency bounds of the service, and the split over the classes.

    `cache_creation_ratio`: given where input written to the cache has a price. `by_context`: prompt lengths that differ in
    price by more than 20 % get their own prices.
    """

    gpu_hour_cost: Fraction
    markup: Fraction
    bounds: LatencyBounds
    method: str
    output_input_ratio: Fraction
    cache_read_ratio: Fraction
    serving_utilisation: Fraction
    prefill_share: Fraction | None = None
    cache_creation_ratio: Fraction | None = None
    by_context: bool = False


def token_terms(
    numbers: Mapping[str, Fraction], method: str, prefill_share: Fraction | None = None, by_context: bool = False
) -> TokenTerms:
    """Build terms from the numbers of `pricing.token_sheet.NUMBERS`; `cache_creation_ratio` may be left out."""
    bounds = LatencyBounds(
        numbers["ttft_p99_ms"], numbers["tpot_p99_ms"], numbers["max_error_rate"], numbers["min_completed_ratio"],
        numbers["min_duration_s"],
    )  # fmt: skip
    return TokenTerms(
        numbers["gpu_hour_cost"], numbers["markup"], bounds, method, numbers["output_input_ratio"],
        numbers["cache_read_ratio"], numbers["serving_utilisation"], prefill_share, numbers.get("cache_creation_ratio"),
        by_context,
    )  # fmt: skip


def price_tokens(tests: Sequence[LoadTest], terms: TokenTerms) -> tuple[LoadRun, ClassCosts]:
    """Return the sustainable run and the cost of the classes at it.

    Raises LoadPointError where no run is sustainable or prices it, ValueError where the tests do not fit together.
    """
    if terms.method == "least-squares":
        selected, costs = _fitted(tests, terms)
    else:
        test = merge_load_tests(tests)
        selected = test.run_of(sustainable_point([run.point for run in test.runs], terms.bounds))
        costs = _split(selected.point, test.gpus, terms)
    return selected, costs.at_utilisation(terms.serving_utilisation)


def _split(point: LoadPoint, gpus: int, terms: TokenTerms) -> ClassCosts:
    uncached, cached = point.uncached_input_tps / gpus, point.cached_input_tps / gpus
    output, cost = point.output_tps / gpus, terms.gpu_hour_cost
    if terms.method == "output-only":
        return output_only_costs(cost, output_tps=output)
    if terms.method == "phase":
        return phase_costs(
            cost, prefill_share=terms.prefill_share or Fraction(0), uncached_tps=uncached, cached_tps=cached,
            output_tps=output, cached_ratio=terms.cache_read_ratio,
        )  # fmt: skip
    return ratio_costs(
        cost, uncached_tps=uncached, cached_tps=cached, output_tps=output, output_ratio=terms.output_input_ratio,
        cached_ratio=terms.cache_read_ratio,
    )  # fmt: skip


def _fitted(tests: Sequence[LoadTest], terms: TokenTerms) -> tuple[LoadRun, ClassCosts]:
    chosen = fitted_runs(tests, terms.bounds)
    fitted = fit_gpu_seconds([measured for _, measured in chosen], terms.cache_read_ratio)
    deciding = deciding_point([run.point for run, _ in chosen])
    return next(run for run, _ in chosen if run.point == deciding), fitted.costs(terms.gpu_hour_cost)


def fitted_runs(tests: Sequence[LoadTest], bounds: LatencyBounds) -> list[tuple[LoadRun, MeasuredRun]]:
    """Return the runs for least squares: the sustainable run of every report, or the passing prefix of a single report.

    The reports may differ only in GPUs, which the fit counts.  Raises LoadPointError where a report has no sustainable run,
    DeploymentsError where models, accelerators, engines or precisions differ.
    """
    refuse_differences(tests, NAMES)
    chosen: list[tuple[LoadRun, MeasuredRun]] = []
    for test in tests:
        points = [run.point for run in test.runs]
        best = sustainable_point(points, bounds)
        taken = passing_prefix(points, bounds) if len(tests) == 1 else [best]
        chosen += [(test.run_of(point), _measured(test, point)) for point in taken]
    return chosen


def _measured(test: LoadTest, point: LoadPoint) -> MeasuredRun:
    seconds = point.duration_s or Fraction(0)
    millions = seconds / MILLION
    return MeasuredRun(
        point.uncached_input_tps * millions, point.cached_input_tps * millions, point.output_tps * millions,
        test.gpus * seconds,
    )  # fmt: skip


def class_rows(costs: ClassCosts, terms: TokenTerms) -> list[dict[str, str]]:
    """Return the classes of the answer: costs with 12 decimals, prices rounded once to 4."""
    rows = [("input", costs.input), ("cache_read", costs.cache_read), ("output", costs.output)]
    if terms.cache_creation_ratio is not None:
        rows.append(("cache_creation", costs.input * terms.cache_creation_ratio))
    prices = [format(round_price(cost * (1 + terms.markup)), "f") for _, cost in rows]
    return [
        {"class": name, "cost_per_1m": exact_decimal(cost), "price_per_1m": price}
        for (name, cost), price in zip(rows, prices, strict=True)
    ]
