"""Command `tokens REPORT...`: selected load point and price of 1M tokens by class from load-test reports."""

import argparse
from decimal import Decimal
from typing import Any, Final

from pricing.commands.files import (
    BAD_INPUT,
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
from pricing.number_text import short_text
from pricing.token_contexts import priced_answer
from pricing.token_price import LoadPointError
from pricing.token_pricing import TokenTerms, token_terms
from pricing.token_sheet import METHODS, NUMBERS, PART

HELP = "load-test report(s) -> selected load point and price per 1M tokens by class"
TERMS: Final = {
    "gpu_hour_cost": "cost (not price) of one GPU-hour",
    "markup": "on cost, ratio",
    "ttft_p99_ms": "bound on the time to first token",
    "tpot_p99_ms": "bound on the time per output token",
    "max_error_rate": "bound on failed requests",
    "min_completed_ratio": "least completed over offered requests",
    "min_duration_s": "least duration of a run",
    "output_input_ratio": "output over uncached input",
    "cache_read_ratio": "cached over uncached input",
    "serving_utilisation": "served over sustainable load",
}
"""Options with the range and default of the same field of a token cost sheet."""
OTHERS: Final = {
    "prefill_share": (PART, "share of GPU time in prefill, for --method phase"),
    "gpus": (Bound("1", "1e6", "GPUs", whole=True), "GPUs of the deployment, where the report does not say"),
    "error_rate": (PART, "failed requests, where the report does not say"),
    "cached_input_share": (PART, "input from the cache, where the report does not say; 0 for none"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("reports", metavar="REPORT", nargs="+", help="own format, vLLM, SGLang, AIPerf, GuideLLM, Locust")
    for name, text in TERMS.items():
        bound, default = NUMBERS[name]
        ends = f" (default {default})" if default is not None else ""
        parser.add_argument(
            _flag(name), type=number_in(bound), default=default, required=default is None, help=text + ends
        )
    for name, (bound, text) in OTHERS.items():
        parser.add_argument(_flag(name), type=number_in(bound), help=text)
    parser.add_argument("--method", choices=METHODS, default="ratio", help="how the cost is split (default ratio)")
    parser.add_argument("--accelerator", default="", help="product name, where the report does not say")
    parser.add_argument("--model", default="", help="model name, where the report does not say")
    parser.add_argument(
        "--context-buckets", action="store_true", help="prompt lengths that differ in price by more than 20 %% get their own"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(arguments: argparse.Namespace) -> int:
    """Calculate the token prices of a deployment and write them."""
    read = [_read(name, arguments) for name in arguments.reports]
    tests, notes = [test for test, _ in read], [note for _, found in read for note in found]
    try:
        answer = priced_answer(tests, _terms(arguments))
    except ValueError as error:
        status = UNDECIDED if isinstance(error, LoadPointError) else BAD_INPUT
        raise CommandError([f"{', '.join(arguments.reports)}: {error}"], status) from error
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
    numbers = {name: getattr(arguments, name) for name in TERMS}
    return token_terms(numbers, arguments.method, arguments.prefill_share, arguments.context_buckets)


def _lines(test: LoadTest, answer: dict[str, Any], arguments: argparse.Namespace) -> list[str]:
    run = ", ".join(f"{field} {value}" for field, value in answer["selected"].items())
    classes = [(row["class"], row["cost_per_1m"], row["price_per_1m"]) for row in answer["classes"]]
    used = short_text(arguments.serving_utilisation, 4)
    return [
        f"{test.model} on {test.gpus} x {test.accelerator or 'GPU'}, method {arguments.method}",
        f"selected: {run}",
        f"GPU-hour cost {answer['gpu_hour_cost']}, serving utilisation {used}, markup {short_text(arguments.markup, 4)}",
        "",
        *table([("class", "cost per 1M", "price per 1M"), *classes]),
        *_context_lines(answer),
    ]


def _context_lines(answer: dict[str, Any]) -> list[str]:
    """Return lines of the prices per bucket, and of the change at each step between the measured lengths."""
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
