"""Token side of the workbench: a stored load test under terms that can be changed -> its methods and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django import forms
from django.utils.translation import gettext

from billing.portal.forms import Input, InputsForm
from billing.portal.input_names import hint_of
from billing.portal.labels import LABELS
from billing.portal.price_lists import published_versions
from metering.messages import Message
from pricing.loadtests.own import LoadTest
from pricing.money import exact_decimal
from pricing.token_contexts import runs_by_length
from pricing.token_methods import COMPARED, MethodOutcome, RunVerdict, compared_methods, run_verdicts
from pricing.token_sheet import BY_CONTEXT, METHODS, NUMBERS, PART, TokenSheet, TokenSheetError, parse_token_sheet

TERMS: Final = (*NUMBERS, "prefill_share")
CLASSES: Final = ("input", "cache_read", "cache_creation", "output")


@dataclass(frozen=True)
class ShownMethod:
    """Column of the comparison: the outcome of a method, True if it is chosen, and its prices with their gaps."""

    outcome: MethodOutcome
    chosen: bool
    prices: list[tuple[Decimal | None, Decimal | None]]

    @property
    def recovered(self) -> str:
        """Return the revenue of a provisioned GPU-hour at the prices without markup."""
        return "" if self.outcome.recovered is None else exact_decimal(self.outcome.recovered, 4)


@dataclass(frozen=True)
class ShownContext:
    """Bucket of prompt lengths: the lengths that were measured in it, and its price of each class."""

    context: str
    measured: list[int]
    prices: list[Decimal | None]


@dataclass(frozen=True)
class ShownStep:
    """Step from one measured length to the next, in percent of the class that differs most."""

    shorter: int
    longer: int
    token_class: str
    percent: Decimal
    splits: bool


@dataclass(frozen=True)
class TokenBench:
    """Results of one load test for the page; `problems` if the terms price nothing."""

    terms: "TermsForm"
    runs: list[tuple[LoadTest, list[tuple[RunVerdict, list[str]]]]] = field(default_factory=list)
    methods: list[ShownMethod] = field(default_factory=list)
    published: list[Decimal | None] = field(default_factory=list)
    problems: Sequence[str] = ()
    contexts: list[ShownContext] = field(default_factory=list)
    steps: list[ShownStep] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[str, Decimal | None, list[tuple[Decimal | None, Decimal | None]]]]:
        """Return each class, its published price, and its price by each method with the gap to the chosen one."""
        prices = [method.prices for method in self.methods]
        return list(zip(CLASSES, self.published, map(list, zip(*prices, strict=True)), strict=True))


def sheet_asked(inputs: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sheet of `inputs` under its own terms, or under those of the request."""
    values = {name: str(asked.get(name, inputs.get(name, ""))).strip() for name in TERMS}
    by_context = asked.get(BY_CONTEXT, "") if "method" in asked else inputs.get(BY_CONTEXT, "")
    return {
        "currency": inputs["currency"], "report": inputs["report"],
        "method": str(asked.get("method", inputs.get("method", METHODS[0]))),
        **({BY_CONTEXT: str(by_context)} if by_context else {}), **{name: value for name, value in values.items() if value},
    }  # fmt: skip


class TermsForm(InputsForm):
    """Form of the terms and the method that price a load test; `sheet` is the load test under them."""

    sheet: TokenSheet | None = None

    def __init__(self, given: Mapping[str, Any], *, hidden: bool = False) -> None:
        self.given = given
        methods = [(name, LABELS["token_method"][name]) for name in COMPARED]
        buckets = [
            ("false", gettext("one price for all prompts")),
            ("true", gettext("by prompt length, where prices differ by more than a fifth")),
        ]
        bounds = {name: NUMBERS.get(name, (PART, None)) for name in TERMS}
        values = {name: given.get(name) or default or "" for name, (_, default) in bounds.items()}
        inputs = {
            "method": Input("method", widget=forms.Select(choices=methods)),
            BY_CONTEXT: Input(BY_CONTEXT, widget=forms.Select(choices=buckets)),
            **{name: Input(name, hint_of(bound)) for name, (bound, _) in bounds.items()},
        }
        data = {"method": given["method"], BY_CONTEXT: given.get(BY_CONTEXT, "false"), **values}
        super().__init__(data, inputs, prefix="t")
        if hidden:
            self.auto_id = False

    def clean(self) -> None:
        """Parse the load test under the terms."""
        try:
            self.sheet = parse_token_sheet(self.given)
        except TokenSheetError as error:
            self.keep_all(error.problems)


def token_bench(given: Mapping[str, Any]) -> TokenBench:
    """Calculate the results of a sheet: every method, every run, and the buckets of prompt lengths if asked for."""
    terms = TermsForm(given)
    if not terms.is_valid() or terms.sheet is None:
        return TokenBench(terms, problems=terms.messages)
    sheet = terms.sheet
    runs = [(test, [(verdict, _figures(verdict)) for verdict in _verdicts(test, sheet)]) for test in sheet.tests]
    problems, contexts, steps = _contexts(sheet)
    published = _published(sheet.tests[0].model)
    return TokenBench(terms, runs, _methods(sheet, given["method"]), published, problems, contexts, steps)


def _contexts(sheet: TokenSheet) -> tuple[list[Message], list[ShownContext], list[ShownStep]]:
    """Return problems, the price of each class in each bucket, and the change of each step between measured lengths."""
    try:
        answer = sheet.result()
    except ValueError as error:
        return [Message.of(error)], [], []
    contexts = [
        ShownContext(
            part["context"], [item["tokens"] for item in part["measured"]],
            [{row["class"]: Decimal(row["price_per_1m"]) for row in part["classes"]}.get(name) for name in CLASSES],
        )
        for part in answer.get("contexts", ())
    ]  # fmt: skip
    steps = [
        ShownStep(step["from_tokens"], step["to_tokens"], step["class"], _percent(Fraction(step["change"])), step["splits"])
        for step in answer.get("context_steps", ())
    ]
    return [], contexts, steps


def _verdicts(test: LoadTest, sheet: TokenSheet) -> list[RunVerdict]:
    """Return the verdict of every run; by prompt length each length has a sustainable point of its own."""
    groups = [test.runs]
    if sheet.terms.by_context and all(run.point.completed_rps for run in test.runs):
        groups = [tuple(run for _, run in group) for group in runs_by_length([test])]
    return [verdict for runs in groups for verdict in run_verdicts(runs, sheet.terms.bounds)]


def _figures(verdict: RunVerdict) -> list[str]:
    """Return offered requests/s, input and output tokens/s, TTFT and TPOT in ms, with up to 3 decimals."""
    point = verdict.run.point
    given = (point.offered_rps, point.input_tps, point.output_tps, point.ttft_p99_ms, point.tpot_p99_ms)
    return [exact_decimal(value, 3).rstrip("0").rstrip(".") for value in given]


def _methods(sheet: TokenSheet, method: str) -> list[ShownMethod]:
    shown = []
    for outcome in compared_methods(sheet):
        prices, gaps = outcome.prices or {}, outcome.gaps or {}
        rows = [(prices.get(name), _percent(gaps[name]) if name in gaps else None) for name in CLASSES]
        shown.append(ShownMethod(outcome, outcome.method == method, rows))
    return shown


def _percent(ratio: Fraction) -> Decimal:
    return Decimal(exact_decimal(ratio * 100, 1))


def _published(model: str) -> list[Decimal | None]:
    version = published_versions().first()
    found = {row.token_class: row.price for row in version.tokens.all() if row.model == model} if version else {}
    return [found.get(name) for name in CLASSES]
