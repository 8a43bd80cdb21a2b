"""PURE: load tests + terms -> cost and price of 1M tokens by class; and the sheet in which both are kept together.

A token cost sheet is to a token price what a cost sheet is to a GPU-hour: the report in its own format, what it ran on,
and every number that turned it into prices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from pricing.cost_sheet import CURRENCY
from pricing.fields import Bound, FieldProblem, FieldReader, InputError, shown
from pricing.loadtests.own import LoadRun, LoadTest, LoadTestError, merge_load_tests, parse_load_test
from pricing.money import exact_decimal, round_price
from pricing.token_price import (
    CACHED_RATIO,
    MILLION,
    OUTPUT_RATIO,
    ClassCosts,
    LatencyBounds,
    LoadPoint,
    MeasuredRun,
    fit_gpu_seconds,
    output_only_costs,
    phase_costs,
    ratio_costs,
    sustainable_point,
)

METHODS: Final = ("ratio", "phase", "least-squares", "output-only")
COST: Final = Bound("0", "1e6", "currency per GPU-hour, cost without markup")
RATIO: Final = Bound("0", "1000", "multiple of the price of uncached input", above_low=True)
CACHE_RATIO: Final = Bound("0", "2", "multiple of the price of uncached input", "10 % is 0.1")
SHARE: Final = Bound("0", "1", "ratio", "60 % is 0.60", above_low=True)
PART: Final = Bound("0", "1", "ratio", "1 % is 0.01")
MARKUP: Final = Bound("0", "2", "ratio on cost", "20 % is 0.20")
MILLISECONDS: Final = Bound("0", "1e8", "milliseconds", above_low=True)
SECONDS: Final = Bound("0", "1e8", "seconds")

NUMBERS: Final[dict[str, tuple[Bound, str | None]]] = {
    "gpu_hour_cost": (COST, None),
    "markup": (MARKUP, "0"),
    "ttft_p99_ms": (MILLISECONDS, None),
    "tpot_p99_ms": (MILLISECONDS, None),
    "max_error_rate": (PART, "0.01"),
    "min_completed_ratio": (PART, "0.99"),
    "min_duration_s": (SECONDS, "600"),
    "output_input_ratio": (RATIO, str(OUTPUT_RATIO)),
    "cache_read_ratio": (CACHE_RATIO, str(Decimal(CACHED_RATIO.numerator) / Decimal(CACHED_RATIO.denominator))),
    "cache_creation_ratio": (CACHE_RATIO, "1"),
    "serving_utilisation": (SHARE, "1"),
}
"""Bound of each term, and its default where it has one."""


class TokenSheetError(InputError):
    """A sheet that gives no price; `messages` has one line per bad field."""


@dataclass(frozen=True)
class TokenTerms:
    """How a load test is read: the cost of a GPU-hour, the bounds of the service, and the split over the classes."""

    gpu_hour_cost: Fraction
    markup: Fraction
    bounds: LatencyBounds
    method: str
    output_input_ratio: Fraction
    cache_read_ratio: Fraction
    serving_utilisation: Fraction
    prefill_share: Fraction | None = None


@dataclass(frozen=True)
class TokenSheet:
    """A checked sheet: load tests of one deployment, and the terms that they are priced under."""

    currency: str
    tests: tuple[LoadTest, ...]
    terms: TokenTerms
    cache_creation_ratio: Fraction

    def result(self) -> dict[str, Any]:
        """The selected run and the classes, `cache_creation` among them.

        Raises LoadPointError where no run is sustainable, ValueError where the reports do not fit together.
        """
        selected, costs = price_tokens(self.tests, self.terms)
        answer = token_prices(self.tests[0].model, selected, costs, self.terms)
        written = _class_row("cache_creation", costs.input * self.cache_creation_ratio, self.terms.markup)
        return {**answer, "currency": self.currency, "classes": [*answer["classes"], written]}


def parse_token_sheet(fields: object) -> TokenSheet:
    """Check a mapping: `currency`, `report` (own format, or a list of them), `method` and the terms of NUMBERS.

    Raises TokenSheetError with a message for every bad field at once.
    """
    reader = FieldReader(fields, "a token cost sheet")
    if reader.problems:
        raise TokenSheetError(reader.problems)
    currency, method = reader.text("currency"), reader.text("method", default=METHODS[0])
    if currency and not CURRENCY.match(currency):
        reader.refuse("currency", f"{shown(currency)} must be an ISO 4217 code such as CNY")
    if method not in METHODS:
        reader.refuse("method", f"{shown(method)} must be one of {', '.join(METHODS)}")
    found = {name: reader.number(name, bound, default) for name, (bound, default) in NUMBERS.items()}
    share = reader.optional("prefill_share", PART)
    if method == "phase" and not reader.has("prefill_share"):
        reader.refuse("prefill_share", "is missing, method phase needs the share of GPU time in prefill")
    tests = _tests(reader)
    reader.finish(["currency", "report", "method", "prefill_share", *NUMBERS])
    numbers = {name: number for name, number in found.items() if number is not None}
    if reader.problems:
        raise TokenSheetError(reader.problems)
    bounds = LatencyBounds(
        numbers["ttft_p99_ms"], numbers["tpot_p99_ms"], numbers["max_error_rate"], numbers["min_completed_ratio"],
        numbers["min_duration_s"],
    )  # fmt: skip
    terms = TokenTerms(
        numbers["gpu_hour_cost"], numbers["markup"], bounds, method, numbers["output_input_ratio"],
        numbers["cache_read_ratio"], numbers["serving_utilisation"], share,
    )  # fmt: skip
    return TokenSheet(currency, tuple(tests), terms, numbers["cache_creation_ratio"])


def _tests(reader: FieldReader) -> list[LoadTest]:
    given = reader.fields.get("report")
    if isinstance(given, Mapping):
        return [test for test in (_test(reader, given, ("report",)),) if test is not None]
    read = (_test(reader, item, ("report", index)) for index, item in enumerate(reader.each("report")))
    return [test for test in read if test is not None]


def _test(reader: FieldReader, given: object, path: tuple[str | int, ...]) -> LoadTest | None:
    try:
        return parse_load_test(given)
    except LoadTestError as error:
        reader.problems += [FieldProblem((*path, *problem.path), problem.text) for problem in error.problems]
        return None


def price_tokens(tests: Sequence[LoadTest], terms: TokenTerms) -> tuple[LoadRun, ClassCosts]:
    """The sustainable run and the cost of the classes at it.

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
    selected = max((run for run, _ in chosen), key=lambda run: run.point.offered_rps)
    return selected, fitted.costs(terms.gpu_hour_cost)


def fitted_runs(tests: Sequence[LoadTest], bounds: LatencyBounds) -> list[tuple[LoadRun, MeasuredRun]]:
    """What least squares takes: the sustainable run of every report, or every passing run of a single report.

    Raises LoadPointError where a report has no sustainable run, ValueError for reports of two models or accelerators.
    """
    if len({(test.model, test.accelerator) for test in tests}) > 1:
        raise ValueError("the reports are not of one model on one accelerator")
    chosen: list[tuple[LoadRun, MeasuredRun]] = []
    for test in tests:
        best = test.run_of(sustainable_point([run.point for run in test.runs], bounds))
        single = len(tests) == 1
        runs = [run for run in test.runs if (bounds.hold(run.point) if single else run is best)]
        chosen += [(run, _measured(test, run.point)) for run in runs]
    return chosen


def _measured(test: LoadTest, point: LoadPoint) -> MeasuredRun:
    seconds = point.duration_s or Fraction(0)
    millions = seconds / MILLION
    return MeasuredRun(
        point.uncached_input_tps * millions, point.cached_input_tps * millions, point.output_tps * millions,
        test.gpus * seconds,
    )  # fmt: skip


def token_prices(model: str, selected: LoadRun, costs: ClassCosts, terms: TokenTerms) -> dict[str, Any]:
    """The answer of the contract: costs with 12 decimals, prices with 4."""
    classes = (("input", costs.input), ("cache_read", costs.cache_read), ("output", costs.output))
    return {
        "model": model,
        "method": terms.method,
        "selected": selected.fields,
        "gpu_hour_cost": exact_decimal(terms.gpu_hour_cost),
        "classes": [_class_row(name, cost, terms.markup) for name, cost in classes],
    }


def _class_row(name: str, cost: Fraction, markup: Fraction) -> dict[str, str]:
    price = format(round_price(cost * (1 + markup)), "f")
    return {"class": name, "cost_per_1m": exact_decimal(cost), "price_per_1m": price}
