"""Group F: forecast, thresholds and anomalies of budgets."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.budgets.anomaly import score
from billing.budgets.forecast import Progress, forecast, line
from billing.budgets.thresholds import reached
from pricing.money import round_amount
from tests.golden.registry import case


def _progress(i: dict[str, Any]) -> Progress:
    start = date(2028, 2, 1) if i["days"] == "29" else date(2026, 10, 1)
    return Progress(start, int(i["days"]), Fraction(i["days_elapsed"]), Fraction(i["spend"]))


@case("F09")
@case("F10")
def _(i: dict[str, Any]) -> dict[str, object]:
    answer = line(_progress(i), {})
    published = forecast(_progress(i), {})
    assert answer is not None
    assert published is not None
    assert (published.method, published.p50, published.p10) == ("line", answer, None)
    budget = Fraction(i.get("budget", "1"))
    return {
        "forecast_amount": round_amount(answer), "forecast_over_budget": answer / budget,
        "actual_over_budget": Fraction(i["spend"]) / budget,
    }  # fmt: skip


@case("F11")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"forecast": "null" if forecast(_progress(i), {}) is None else "given"}


@case("F12")
def _(i: dict[str, Any]) -> dict[str, object]:
    percents = [int(Decimal(text) * 100) for text in i["thresholds"]]
    known: set[int] = set()
    fired = []
    for sample in i["samples"]:
        new = set(reached(Decimal(sample), Decimal(i["budget"]), percents)) - known
        known |= new
        fired.append(" ".join(str(percent) for percent in sorted(new)) or "-")
    return {"fired": fired}


@case("F17")
def _(i: dict[str, Any]) -> dict[str, object]:
    found = score([Fraction(x) for x in i["series"]], Fraction(i["x"]))
    return {"median": found.median, "mad": found.mad, "robust_z": found.z, "impact_amount": round_amount(found.impact)}
