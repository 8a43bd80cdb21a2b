"""PURE: token cost sheet: load tests and terms, and from them cost and price of 1M tokens by class.

A token cost sheet is to a token price what a cost sheet is to a GPU-hour: the report in its own format, the deployment,
and every number behind the prices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from metering.messages import Message
from pricing.fields import Bound, FieldProblem, FieldReader, InputError, Path, shown
from pricing.loadtests.own import LoadTest, LoadTestError, parse_load_test
from pricing.token_contexts import priced_answer
from pricing.token_price import CACHED_RATIO, OUTPUT_RATIO
from pricing.token_pricing import TokenTerms, token_terms

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
BY_CONTEXT: Final = "context_buckets"
"""Field that asks for separate prices of prompt lengths that differ in price."""


class TokenSheetError(InputError):
    """Sheet that gives no price; `messages` has one line per bad field."""

    code = "token_sheet"


@dataclass(frozen=True)
class TokenSheet:
    """Checked sheet: load tests of one deployment, and the terms of their price."""

    currency: str
    tests: tuple[LoadTest, ...]
    terms: TokenTerms

    def result(self) -> dict[str, Any]:
        """Return the selected run and the classes, `cache_creation` among them, and buckets of prompt lengths if asked for.

        Raises LoadPointError where no run is sustainable, ValueError where the reports do not fit together.
        """
        return {**priced_answer(self.tests, self.terms), "currency": self.currency}


def parse_token_sheet(fields: object) -> TokenSheet:
    """Check a mapping: `currency`, `report` (own format, or a list), `method`, `context_buckets` and the terms of NUMBERS.

    Raises TokenSheetError with a message for every bad field at once.
    """
    reader = FieldReader(fields, "a token cost sheet")
    if reader.problems:
        raise TokenSheetError(reader.problems)
    currency, method = reader.currency("currency"), reader.text("method", default=METHODS[0])
    if method not in METHODS:
        reader.refuse("method", Message(
            "%(value)s must be one of %(options)s", value=shown(method), options=", ".join(METHODS)
        ))
    found = {name: reader.number(name, bound, default) for name, (bound, default) in NUMBERS.items()}
    share = reader.optional("prefill_share", PART)
    if method == "phase" and not reader.has("prefill_share"):
        reader.refuse("prefill_share", Message("is missing, method phase needs the share of GPU time in prefill"))
    by_context = reader.flag(BY_CONTEXT)
    tests = _tests(reader)
    reader.finish(["currency", "report", "method", "prefill_share", BY_CONTEXT, *NUMBERS])
    numbers = {name: number for name, number in found.items() if number is not None}
    if reader.problems:
        raise TokenSheetError(reader.problems)
    return TokenSheet(currency, tuple(tests), token_terms(numbers, method, share, by_context))


def _tests(reader: FieldReader) -> list[LoadTest]:
    given = reader.fields.get("report")
    items: list[tuple[Path, Any]] = [(("report",), given)]
    if not isinstance(given, Mapping):
        items = [(("report", index), item) for index, item in enumerate(reader.each("report"))]
    tests = []
    for path, item in items:
        try:
            tests.append(parse_load_test(item))
        except LoadTestError as error:
            reader.problems += [FieldProblem((*path, *problem.path), problem.text) for problem in error.problems]
    return tests
