"""`tokens REPORT...`: load-test reports -> selected load point and price of 1M tokens by class."""

import argparse
from fractions import Fraction
from typing import Any, Final

from pricing.commands.files import (
    OK,
    UNDECIDED,
    CommandError,
    problems_of,
    read_bytes,
    table,
    write_json,
    write_lines,
)
from pricing.documents import DocumentError
from pricing.fields import Bound, exact_number, shown
from pricing.loadtests.own import LoadRun, LoadTest, merge_load_tests, parse_load_test
from pricing.loadtests.reports import Supplement, read_report
from pricing.money import exact_decimal, round_price
from pricing.token_price import (
    CACHED_RATIO,
    MILLION,
    OUTPUT_RATIO,
    ClassCosts,
    LatencyBounds,
    LoadPoint,
    LoadPointError,
    MeasuredRun,
    fit_gpu_seconds,
    output_only_costs,
    phase_costs,
    ratio_costs,
    sustainable_point,
)

HELP = "load-test report(s) -> selected load point and price per 1M tokens by class"
METHODS: Final = ("ratio", "phase", "least-squares", "output-only")
COST: Final = Bound("0", "1e6", "currency per GPU-hour, cost without markup")
RATIO: Final = Bound("0", "1000", "multiple of the price of uncached input", above_low=True)
CACHE_RATIO: Final = Bound("0", "2", "multiple of the price of uncached input", "10 % is 0.1")
SHARE: Final = Bound("0", "1", "ratio", "60 % is 0.60", above_low=True)
PART: Final = Bound("0", "1", "ratio", "1 % is 0.01")
MARKUP: Final = Bound("0", "2", "ratio on cost", "20 % is 0.20")
MILLISECONDS: Final = Bound("0", "1e8", "milliseconds", above_low=True)
SECONDS: Final = Bound("0", "1e8", "seconds")
GPUS: Final = Bound("1", "1e6", "GPUs", whole=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""

    def number(flag: str, bound: Bound, text: str, default: str | None = None, required: bool = False) -> None:
        ends = f" (default {default})" if default is not None else ""
        parser.add_argument(flag, type=_number(bound), default=_default(default), required=required, help=text + ends)

    parser.add_argument("reports", metavar="REPORT", nargs="+", help="own format, vLLM, SGLang, AIPerf, GuideLLM, Locust")
    number("--gpu-hour-cost", COST, "cost (not price) of one GPU-hour", required=True)
    number("--markup", MARKUP, "on cost, ratio", default="0")
    number("--ttft-p99-ms", MILLISECONDS, "bound on the time to first token", required=True)
    number("--tpot-p99-ms", MILLISECONDS, "bound on the time per output token", required=True)
    number("--max-error-rate", PART, "bound on failed requests", default="0.01")
    number("--min-completed-ratio", PART, "least completed over offered requests", default="0.99")
    number("--min-duration-s", SECONDS, "least duration of a run", default="600")
    parser.add_argument("--method", choices=METHODS, default="ratio", help="how the cost is split (default ratio)")
    number("--output-input-ratio", RATIO, "output over uncached input", default=str(OUTPUT_RATIO))
    number("--cache-read-ratio", CACHE_RATIO, "cached over uncached input", default=str(_plain(CACHED_RATIO)))
    number("--prefill-share", PART, "share of GPU time in prefill, for --method phase")
    number("--serving-utilisation", SHARE, "served over sustainable load", default="1")
    number("--gpus", GPUS, "GPUs of the deployment, where the report does not say")
    number("--error-rate", PART, "failed requests, where the report does not say")
    parser.add_argument("--accelerator", default="", help="product name, where the report does not say")
    parser.add_argument("--model", default="", help="model name, where the report does not say")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def _plain(ratio: Fraction) -> str:
    """A ratio as decimal text."""
    return exact_decimal(ratio, 4).rstrip("0").rstrip(".")


def _default(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _number(bound: Bound) -> Any:
    def convert(text: str) -> Fraction:
        number = exact_number(text)
        if number is None or not bound.holds(number):
            raise argparse.ArgumentTypeError(f"{shown(text)} {bound.expected}")
        return number

    return convert


def run(arguments: argparse.Namespace) -> int:
    """Price the tokens of a deployment."""
    tests = [_read(name, arguments) for name in arguments.reports]
    bounds = LatencyBounds(
        arguments.ttft_p99_ms, arguments.tpot_p99_ms, arguments.max_error_rate, arguments.min_completed_ratio,
        arguments.min_duration_s,
    )  # fmt: skip
    selected, costs = _price(tests, bounds, arguments)
    answer = _answer(tests[0].model, selected, costs, arguments)
    if arguments.json:
        write_json(answer)
    else:
        write_lines(_lines(tests[0], answer, arguments))
    return OK


def _read(name: str, arguments: argparse.Namespace) -> LoadTest:
    extra = Supplement(arguments.accelerator, arguments.gpus, arguments.model, arguments.error_rate)
    try:
        report = read_report(read_bytes(name), name, extra)
    except DocumentError as error:
        raise CommandError([str(error)]) from error
    with problems_of(report):
        return parse_load_test(report.value)


def _price(
    tests: list[LoadTest], bounds: LatencyBounds, arguments: argparse.Namespace
) -> tuple[LoadRun, ClassCosts]:
    """The sustainable run and the cost of the classes at it.

    Raises CommandError: status 2 where the reports do not fit together, 3 where no run is sustainable or prices it.
    """
    try:
        if arguments.method == "least-squares":
            selected, costs = _fitted(tests, bounds, arguments)
        else:
            test = merge_load_tests(tests)
            selected = test.run_of(sustainable_point([run.point for run in test.runs], bounds))
            costs = _split(selected.point, test.gpus, arguments)
        return selected, costs.at_utilisation(arguments.serving_utilisation)
    except LoadPointError as error:
        raise CommandError([f"{', '.join(arguments.reports)}: {error}"], UNDECIDED) from error
    except ValueError as error:
        raise CommandError([f"{', '.join(arguments.reports)}: {error}"]) from error


def _split(point: LoadPoint, gpus: int, arguments: argparse.Namespace) -> ClassCosts:
    uncached, cached = point.uncached_input_tps / gpus, point.cached_input_tps / gpus
    output, cost = point.output_tps / gpus, arguments.gpu_hour_cost
    if arguments.method == "output-only":
        return output_only_costs(cost, output_tps=output)
    if arguments.method == "phase":
        if arguments.prefill_share is None:
            raise CommandError(["--prefill-share: is missing, --method phase needs the share of GPU time in prefill"])
        return phase_costs(
            cost, prefill_share=arguments.prefill_share, uncached_tps=uncached, cached_tps=cached, output_tps=output,
            cached_ratio=arguments.cache_read_ratio,
        )  # fmt: skip
    return ratio_costs(
        cost, uncached_tps=uncached, cached_tps=cached, output_tps=output, output_ratio=arguments.output_input_ratio,
        cached_ratio=arguments.cache_read_ratio,
    )  # fmt: skip


def _fitted(
    tests: list[LoadTest], bounds: LatencyBounds, arguments: argparse.Namespace
) -> tuple[LoadRun, ClassCosts]:
    """Least squares over shapes: the sustainable run of every report, or every passing run of a single report."""
    if len({(test.model, test.accelerator) for test in tests}) > 1:
        raise ValueError("the reports are not of one model on one accelerator")
    chosen: list[tuple[LoadTest, LoadRun]] = []
    for test in tests:
        best = test.run_of(sustainable_point([run.point for run in test.runs], bounds))
        single = len(tests) == 1
        chosen += [(test, run) for run in test.runs if (bounds.hold(run.point) if single else run is best)]
    fitted = fit_gpu_seconds([_measured(test, run.point) for test, run in chosen], arguments.cache_read_ratio)
    selected = max((run for _, run in chosen), key=lambda run: run.point.offered_rps)
    return selected, fitted.costs(arguments.gpu_hour_cost)


def _measured(test: LoadTest, point: LoadPoint) -> MeasuredRun:
    seconds = point.duration_s or Fraction(0)
    millions = seconds / MILLION
    return MeasuredRun(
        point.uncached_input_tps * millions, point.cached_input_tps * millions, point.output_tps * millions,
        test.gpus * seconds,
    )  # fmt: skip


def _answer(model: str, selected: LoadRun, costs: ClassCosts, arguments: argparse.Namespace) -> dict[str, Any]:
    classes = (("input", costs.input), ("cache_read", costs.cache_read), ("output", costs.output))
    return {
        "model": model,
        "method": arguments.method,
        "selected": selected.fields,
        "gpu_hour_cost": exact_decimal(arguments.gpu_hour_cost),
        "classes": [
            {
                "class": name,
                "cost_per_1m": exact_decimal(cost),
                "price_per_1m": format(round_price(cost * (1 + arguments.markup)), "f"),
            }
            for name, cost in classes
        ],
    }


def _lines(test: LoadTest, answer: dict[str, Any], arguments: argparse.Namespace) -> list[str]:
    run = ", ".join(f"{field} {value}" for field, value in answer["selected"].items())
    classes = [(row["class"], row["cost_per_1m"], row["price_per_1m"]) for row in answer["classes"]]
    used = _plain(arguments.serving_utilisation)
    return [
        f"{test.model} on {test.gpus} x {test.accelerator or 'GPU'}, method {arguments.method}",
        f"selected: {run}",
        f"GPU-hour cost {answer['gpu_hour_cost']}, serving utilisation {used}, markup {_plain(arguments.markup)}",
        "",
        *table([("class", "cost per 1M", "price per 1M"), *classes]),
    ]
