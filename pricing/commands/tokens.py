"""`tokens REPORT...`: load-test reports -> selected load point and price of 1M tokens by class."""

import argparse
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from pricing.commands.files import (
    OK,
    UNDECIDED,
    CommandError,
    number_in,
    problems_of,
    read_bytes,
    table,
    write_json,
    write_lines,
    write_notes,
)
from pricing.documents import DocumentError
from pricing.fields import Bound
from pricing.loadtests.own import LoadTest, parse_load_test
from pricing.loadtests.reports import Supplement, read_report
from pricing.money import exact_decimal
from pricing.token_contexts import priced_answer
from pricing.token_price import CACHED_RATIO, OUTPUT_RATIO, LatencyBounds, LoadPointError
from pricing.token_pricing import TokenTerms
from pricing.token_sheet import (
    CACHE_RATIO,
    COST,
    MARKUP,
    METHODS,
    MILLISECONDS,
    PART,
    RATIO,
    SECONDS,
    SHARE,
)

HELP = "load-test report(s) -> selected load point and price per 1M tokens by class"
GPUS: Final = Bound("1", "1e6", "GPUs", whole=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""

    def number(flag: str, bound: Bound, text: str, default: str | None = None, required: bool = False) -> None:
        ends = f" (default {default})" if default is not None else ""
        parser.add_argument(flag, type=number_in(bound), default=_default(default), required=required, help=text + ends)

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
    number("--cached-input-share", PART, "input from the cache, where the report does not say; 0 for none")
    parser.add_argument("--accelerator", default="", help="product name, where the report does not say")
    parser.add_argument("--model", default="", help="model name, where the report does not say")
    parser.add_argument(
        "--context-buckets", action="store_true", help="prompt lengths that differ in price by more than 20 %% get their own"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def _plain(ratio: Fraction) -> str:
    """A ratio as decimal text."""
    return exact_decimal(ratio, 4).rstrip("0").rstrip(".")


def _default(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def run(arguments: argparse.Namespace) -> int:
    """Price the tokens of a deployment."""
    read = [_read(name, arguments) for name in arguments.reports]
    tests, notes = [test for test, _ in read], [note for _, found in read for note in found]
    answer = _price(tests, _terms(arguments), arguments.reports)
    write_notes(notes)
    if arguments.json:
        write_json({**answer, **({"notes": notes} if notes else {})})
    else:
        write_lines(_lines(tests[0], answer, arguments))
    return OK


def _read(name: str, arguments: argparse.Namespace) -> tuple[LoadTest, tuple[str, ...]]:
    extra = Supplement(
        arguments.accelerator, arguments.gpus, arguments.model, arguments.error_rate, arguments.cached_input_share
    )
    try:
        report = read_report(read_bytes(name), name, extra)
    except DocumentError as error:
        raise CommandError([str(error)]) from error
    with problems_of(report):
        return parse_load_test(report.value), report.notes


def _terms(arguments: argparse.Namespace) -> TokenTerms:
    if arguments.method == "phase" and arguments.prefill_share is None:
        raise CommandError(["--prefill-share: is missing, --method phase needs the share of GPU time in prefill"])
    bounds = LatencyBounds(
        arguments.ttft_p99_ms, arguments.tpot_p99_ms, arguments.max_error_rate, arguments.min_completed_ratio,
        arguments.min_duration_s,
    )  # fmt: skip
    return TokenTerms(
        arguments.gpu_hour_cost, arguments.markup, bounds, arguments.method, arguments.output_input_ratio,
        arguments.cache_read_ratio, arguments.serving_utilisation, arguments.prefill_share,
        by_context=arguments.context_buckets,
    )  # fmt: skip


def _price(tests: list[LoadTest], terms: TokenTerms, reports: list[str]) -> dict[str, Any]:
    """As `priced_answer`.

    Raises CommandError: status 2 where the reports do not fit together, 3 where no run is sustainable or prices it.
    """
    try:
        return priced_answer(tests, terms)
    except LoadPointError as error:
        raise CommandError([f"{', '.join(reports)}: {error}"], UNDECIDED) from error
    except ValueError as error:
        raise CommandError([f"{', '.join(reports)}: {error}"]) from error


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
        *_context_lines(answer),
    ]


def _context_lines(answer: dict[str, Any]) -> list[str]:
    """The buckets with the runs they rest on, and what each step between the measured lengths changed."""
    rows = [
        (bucket["context"], row["class"], row["cost_per_1m"], row["price_per_1m"])
        for bucket in answer.get("contexts", ())
        for row in bucket["classes"]
    ]
    steps = [
        f"{step['from_tokens']} -> {step['to_tokens']} tokens: {step['class']} {Decimal(step['change']) * 100:+.1f} %, "
        + ("a bucket of its own" if step["splits"] else "the same bucket")
        for step in answer.get("context_steps", ())
    ]
    if "contexts" in answer and not rows:
        steps.append("one price for all prompt lengths: none differs by more than 20 %")
    head = [("input tokens", "class", "cost per 1M", "price per 1M")]
    found = ["", "above: one price for all lengths; by prompt length:", *table([*head, *rows])] if rows else []
    return [*found, *(["", *steps] if steps else [])]
