"""Charts as JSON for the browser: labels, series, and the text of every value. Chart.js draws them (`charts.js`).

Values are decimals as strings, texts are formatted as elsewhere on the page, so that the browser computes nothing.
A table with the same figures stands beside every chart, for screen readers and for browsers without scripts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from django.utils.translation import gettext as _

from billing.budgets.expected import expected_by
from billing.budgets.models import BudgetStatus
from billing.portal.bridge import Bridge
from billing.portal.input_names import input_name
from billing.portal.selectors import TrendPoint
from billing.portal.templatetags.portal import gpu_hours, label, money, quantity, signed_money
from pricing.money import round_price

Value = Decimal | tuple[Decimal, Decimal] | None
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Series:
    """Series of values by label, a pair for a floating bar, None if unknown; `texts` are the tooltips.

    kind: bars, stack (bars one on another), line, dashed, limit, edge, band (from the edge before it). Colours are names of
    variables of portal.css, one for the series or one for each value. links: the address that a click on a value opens.
    """

    name: str
    kind: str
    colour: str
    values: Sequence[Value]
    texts: Sequence[str]
    colours: Sequence[str] = ()
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart over `labels`. `links`: the address that a click on a label opens. `lying`: bars are horizontal, one on another.
    `axis`: title of the value axis if it differs from the `unit` shown with each value; `across`: title of the label axis.

    `from_zero`: the value axis begins at zero, which hides small differences. `legend`: the chart draws a legend
    of its series. `written`: the text of each value stands beside its bar.
    """

    labels: Sequence[str]
    series: Sequence[Series]
    unit: str = ""
    links: Sequence[str] = ()
    lying: bool = False
    from_zero: bool = True
    axis: str = ""
    legend: bool = True
    across: str = ""
    written: bool = False

    @property
    def json(self) -> str:
        """Return the chart as JSON for an attribute of the canvas; the template escapes it."""
        series = [
            {"name": str(item.name), "kind": item.kind, "colour": item.colour, "colours": list(item.colours),
             "values": [_plain(value) for value in item.values], "texts": list(item.texts),
             "links": list(item.links)}
            for item in self.series
        ]  # fmt: skip
        shown = {"labels": list(self.labels), "series": series, "unit": self.unit, "links": list(self.links)}
        looks = {
            "lying": self.lying, "from_zero": self.from_zero, "axis": self.axis or self.unit, "legend": self.legend,
            "across": self.across, "written": self.written,
        }  # fmt: skip
        return json.dumps(shown | looks, ensure_ascii=False)


def _plain(value: Value) -> str | list[str] | None:
    if isinstance(value, tuple):
        return [f"{end:f}" for end in value]
    return None if value is None else f"{value:f}"


def trend_chart(trend: Sequence[TrendPoint], month: str, currency: str) -> Chart:
    """Return the chart of totals by month, the month shown in full colour; a click opens a month."""
    totals = [point.total for point in trend]
    colours = ["gpu" if point.month == month else "gpu-soft" for point in trend]
    series = Series(_("Total"), "bars", "gpu", totals, ["" if total is None else money(total) for total in totals], colours)
    links = [f"?month={point.month}" for point in trend]
    return Chart([point.month for point in trend], [series], currency, links, across=_("Month"))


def days_chart(days: Sequence[tuple[date, Decimal, Decimal]], unit: str, currency: str, colour: str) -> Chart:
    """Return bars of the quantity from the first day to the last, of (day, quantity, amount); tooltips have the amount."""
    found = {day: (used, amount) for day, used, amount in days}
    # days without usage have a place too, so that a gap is seen
    every = [min(found) + timedelta(number) for number in range((max(found) - min(found)).days + 1)] if found else []
    parts = [found.get(day) for day in every]
    texts = [f"{quantity(part[0])} {unit}, {money(part[1])} {currency}" if part else "" for part in parts]
    series = Series("", "bars", colour, [part[0] if part else None for part in parts], texts)
    return Chart([day.isoformat() for day in every], [series], axis=unit, across=_("Day"))


def bridge_chart(bridge: Bridge, currency: str) -> Chart:
    """Return the waterfall from the earlier total over each effect to the later total."""
    first, *effects, last = bridge.steps
    reached = accumulate((effect.amount for effect in effects), initial=first.amount)
    values = [(Decimal(0), first.amount), *pairwise(reached), (Decimal(0), last.amount)]
    texts = [money(first.amount), *(signed_money(effect.amount) for effect in effects), money(last.amount)]
    colours = ["gpu", *("unowned" if effect.amount > 0 else "jade" for effect in effects), "gpu"]
    series = Series("", "bars", "gpu", values, texts, colours)
    names = [str(label(step.name, "effect")) for step in bridge.steps]
    return Chart(names, [series], currency, across=_("Effect"), written=True)


Ends = tuple[Fraction, Fraction]


def waterfall_chart(steps: Sequence[tuple[str, Ends, str]], price: Decimal, currency: str) -> Chart:
    """Return horizontal bars of (component, from and to, amount as text), and below them the price that they add up to;
    losses and earnings have colours of their own.
    """
    special = {"markup": "jade", "unsold": "unowned", "spares": "unowned"}
    colours = [special.get(name, "gpu") for name, *_rest in steps]
    values = [*(_places(ends) for _name, ends, _text in steps), (Decimal(0), price)]
    texts = [*(text for *_rest, text in steps), f"{price:f}"]
    series = Series("", "bars", "gpu", values, texts, [*colours, "gpu"])
    names = [*(str(label(name, "price_part")) for name, *_rest in steps), _("Price")]
    return Chart(
        names, [series], currency, lying=True, axis=_of_a_gpu_hour(currency), across=_("Component"), written=True
    )


def _of_a_gpu_hour(currency: str) -> str:
    return _("%(currency)s per GPU-hour") % {"currency": currency}


def tornado_chart(swings: Sequence[tuple[str, Ends, str]], price: Fraction, currency: str) -> Chart:
    """Return bars of (input, lowest and highest price, both as text) beside a line at the current price."""
    here = round_price(price)
    series = [
        Series(
            _("From – to"), "bars", "gpu", [_places(ends) for _name, ends, _text in swings],
            [text for *_rest, text in swings],
        ),
        Series(_("Price"), "limit", "unowned", [here] * len(swings), [f"{here:f}"] * len(swings)),
    ]
    names = [input_name(name) for name, *_rest in swings]
    return Chart(
        names, series, currency, lying=True, from_zero=False, axis=_of_a_gpu_hour(currency), across=_("Input")
    )


def _places(ends: Ends) -> tuple[Decimal, Decimal]:
    return round_price(ends[0]), round_price(ends[1])


def pools_chart(pools: Sequence[Mapping[str, Any]], uses: Sequence[str]) -> Chart:
    """Return stacked bars of the uses of each pool's time, in GPU-hours."""
    words = {"charged": _("Charged"), "platform": _("Platform"), "unowned": _("Unowned"), "unpriced": _("Unpriced"),
             "idle": _("Idle")}  # fmt: skip
    series = [
        Series(words[use], "bars", "gpu" if use == "charged" else use,
               [None if pool[use] is None else max(Decimal(pool[use]), Decimal(0)) / HOUR for pool in pools],
               [gpu_hours(pool[use]) for pool in pools])
        for use in uses
    ]  # fmt: skip
    names = [f"{pool['accelerator']} {pool['cluster']}" for pool in pools]
    return Chart(names, series, "GPU-h", lying=True, across=_("Pool"))


@dataclass(frozen=True, slots=True)
class DayRow:
    """Day of the period so far: its cost, and the sum since the period began."""

    day: date
    amount: Decimal
    total: Decimal


def day_rows(days: Sequence[tuple[date, Decimal]], first: date, passed: int) -> list[DayRow]:
    """Return the `passed` complete days of a period that begins on `first`; a day without spending has zero."""
    known = dict(days)
    rows: list[DayRow] = []
    total = Decimal(0)
    for number in range(passed):
        day = first + timedelta(days=number)
        amount = known.get(day, Decimal(0))
        total += amount
        rows.append(DayRow(day, amount, total))
    return rows


def course_chart(
    standing: BudgetStatus, rows: Sequence[DayRow], first: date, count: int, elapsed: Fraction, currency: str
) -> Chart:
    """Return the chart of a budget's period of `count` days, `elapsed` of them passed: sums by day, budget and forecast."""
    today, end = min(int(elapsed), count - 1), count - 1

    def placed(points: Mapping[int, Decimal | None]) -> tuple[list[Value], list[str]]:
        return [points.get(day) for day in range(count)], [money(points.get(day)) for day in range(count)]

    def towards(amount: Decimal | None) -> tuple[list[Value], list[str]]:
        return placed({} if amount is None else {today: standing.spent, end: amount})

    spent = placed({**{number: row.total for number, row in enumerate(rows)}, today: standing.spent})
    series = [Series(_("Spent"), "line", "gpu", *spent)]
    series.append(Series(_("Budget"), "limit", "unowned", *placed(dict.fromkeys(range(count), standing.amount))))
    expected = expected_by(standing)
    if expected.p50 is not None:
        series.append(Series(_("Forecast"), "dashed", "tokens", *towards(expected.p50)))
    if expected.p10 is not None and expected.p90 is not None:
        series.append(Series(_("80 % likely, from"), "edge", "tokens", *towards(expected.p10)))
        series.append(Series(_("80 % likely, to"), "band", "tokens", *towards(expected.p90)))
    return Chart([(first + timedelta(days=day)).isoformat() for day in range(count)], series, currency, across=_("Day"))
