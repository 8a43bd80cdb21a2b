"""PURE: comparison of methods on one load test: verdict of each run, prices side by side, and diagnostics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import Final

from pricing.loadtests.own import LoadRun
from pricing.money import exact_decimal
from pricing.number_text import short_text
from pricing.token_contexts import one_price
from pricing.token_price import ClassCosts, LatencyBounds, deciding_point, fit_gpu_seconds, passing_prefix
from pricing.token_pricing import class_rows, fitted_runs
from pricing.token_sheet import TokenSheet

COMPARED: Final = ("ratio", "phase", "least-squares")
LARGEST_GAP: Final = Fraction(15, 100)
ROOT_PLACES: Final = 3


@dataclass(frozen=True)
class RunVerdict:
    """Verdict on one run: the bounds that it breaks; `void`: it passes, but its own rate or a lower one failed."""

    run: LoadRun
    broken: Sequence[str]
    void: bool
    selected: bool


@dataclass(frozen=True)
class MethodOutcome:
    """Result of a method; `refusal` is the reason where it gives none. Prices are list prices per 1M tokens by class."""

    method: str
    refusal: str = ""
    costs: ClassCosts | None = None
    prices: Mapping[str, Decimal] | None = None
    recovered: Fraction | None = None
    diagnostics: Mapping[str, str] | None = None
    gaps: Mapping[str, Fraction] | None = None

    @property
    def far(self) -> bool:
        """Return True if a class is further than 15 % from the chosen method: the length mix or the timers are wrong."""
        return any(abs(gap) > LARGEST_GAP for gap in (self.gaps or {}).values())


def run_verdicts(runs: Sequence[LoadRun], bounds: LatencyBounds) -> list[RunVerdict]:
    """Judge runs by offered rate: the last of the passing prefix is selected; a pass at or above a failure is void (FT1)."""
    passing = passing_prefix([run.point for run in runs], bounds)
    deciding = deciding_point(passing) if passing else None
    selected = next((run for run in runs if run.point == deciding), None)
    return [
        RunVerdict(run, broken, not broken and run.point not in passing, run is selected)
        for run in sorted(runs, key=lambda run: run.point.offered_rps)
        for broken in (bounds.broken(run.point),)
    ]


def compared_methods(sheet: TokenSheet) -> list[MethodOutcome]:
    """Price one report with methods R, T and L on the same terms, with diagnostics and distance from the chosen one."""
    outcomes = [_outcome(sheet, method) for method in COMPARED]
    chosen = next((one for one in outcomes if one.method == sheet.terms.method), None)
    if chosen is None or chosen.prices is None:
        return outcomes
    return [replace(one, gaps=_gaps(one, chosen)) if one is not chosen else one for one in outcomes]


def _gaps(one: MethodOutcome, chosen: MethodOutcome) -> dict[str, Fraction]:
    theirs, own = chosen.prices or {}, one.prices or {}
    return {name: Fraction(price) / Fraction(theirs[name]) - 1 for name, price in own.items() if theirs.get(name)}


def _outcome(sheet: TokenSheet, method: str) -> MethodOutcome:
    terms = replace(sheet.terms, method=method)
    if method == "phase" and terms.prefill_share is None:
        return MethodOutcome(method, "needs prefill_share: the share of GPU time that the engine's timers give to prefill")
    try:
        costs, recovered = one_price(sheet.tests, terms)
        diagnostics = _diagnostics(sheet, method)
    except ValueError as error:
        return MethodOutcome(method, str(error))
    # the rounded prices of the list are compared, not the exact costs
    prices = {row["class"]: Decimal(row["price_per_1m"]) for row in class_rows(costs, terms)}
    return MethodOutcome(method, "", costs, prices, recovered * terms.serving_utilisation, diagnostics)


def _diagnostics(sheet: TokenSheet, method: str) -> dict[str, str]:
    terms = sheet.terms
    if method != "least-squares":
        own = "prefill_share" if method == "phase" else "output_input_ratio"
        return {name: short_text(getattr(terms, name), 4) for name in (own, "cache_read_ratio")}
    runs = [measured for _, measured in fitted_runs(sheet.tests, terms.bounds)]
    fit = fit_gpu_seconds(runs, terms.cache_read_ratio).fit
    return {
        "runs": str(len(runs)), "condition_number": _root(fit.condition_squared), "residual": _root(fit.residual_squared),
        "recovery_scale": exact_decimal(fit.recovery_scale, 6),
    }  # fmt: skip


def _root(square: Fraction) -> str:
    """Return the square root, cut after 3 decimals."""
    scale = 10**ROOT_PLACES
    return exact_decimal(Fraction(isqrt(square.numerator * scale**2 // square.denominator), scale), ROOT_PLACES)
