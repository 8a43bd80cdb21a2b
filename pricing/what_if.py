"""PURE: analyses of a cost sheet beyond its price: waterfall, sensitivity to each input, break-even, comparison.

Each analysis calculates again from changed inputs by the same formulas, never by derivatives.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final

from metering.messages import Message, UserError
from pricing.cost_sheet import COMPLETE, FOOTPRINT, SIMPLE, CostSheet
from pricing.fields import Bound
from pricing.money import exact_decimal, round_price
from pricing.tariff import flat
from pricing.tco import SURCHARGES, VARIABLE, GpuHourCost, capital_per_gpu, cost_of_gpu_hour, power_kw

SWING: Final = Fraction(1, 10)
"""Change of each input: a tenth of itself, as far as its range allows; counts change by whole pieces."""


SWUNG: Final = ("low", "high", "price_at_low", "price_at_high")


class WhatIfError(UserError, ValueError):
    """Question about a sheet without an answer, such as a sold share of 0."""

    code = "what_if"


@dataclass(frozen=True, slots=True)
class Step:
    """Bar of a waterfall, per GPU-hour: from `start` to `start + amount`."""

    name: str
    start: Fraction
    amount: Fraction


@dataclass(frozen=True, slots=True)
class Swing:
    """Unrounded price with one input at a lower and at a higher value."""

    field: str
    low: Fraction
    high: Fraction
    price_at_low: Fraction
    price_at_high: Fraction

    @property
    def width(self) -> Fraction:
        """Return the difference of both prices."""
        return abs(self.price_at_high - self.price_at_low)


@dataclass(frozen=True, slots=True)
class ComponentChange:
    """Component in two sheets; None where a sheet does not have it."""

    name: str
    old: Fraction | None
    new: Fraction | None

    @property
    def difference(self) -> Fraction:
        """Return new less old; a missing component costs 0."""
        return (self.new or Fraction(0)) - (self.old or Fraction(0))


def exact_price(sheet: CostSheet) -> Fraction:
    """Return FS6 before the rounding of the price list: cost x (1 + markup), currency per GPU-hour."""
    cost = cost_of_gpu_hour(sheet)
    return cost.cost * (1 + cost.markup)


def waterfall(cost: GpuHourCost) -> tuple[Step, ...]:
    """Stack the components, and the markup on top: the last bar ends at the exact price."""
    steps: list[Step] = []
    reached = Fraction(0)
    parts = [(part.name, part.cost_per_gpu_hour) for part in cost.components]
    for name, amount in (*parts, ("markup", cost.cost * cost.markup)):
        steps.append(Step(name, reached, amount))
        reached += amount
    return tuple(steps)


def sensitivity(sheet: CostSheet) -> tuple[Swing, ...]:
    """Vary every input down and up by a tenth; return the widest swing of the price first."""
    return tuple(sorted(_swings(sheet), key=lambda swing: (-swing.width, swing.field)))


def _swings(sheet: CostSheet) -> Iterator[Swing]:
    bounds = {**SIMPLE, **COMPLETE}
    for field, value in sheet.numbers.items():
        # a tenth of 0 is 0; and a tariff makes the flat price a mere base of its ratios
        if not value or field in FOOTPRINT or (field == "electricity_price_per_kwh" and sheet.has_tariff):
            continue
        low, high = _ends(sheet, field, value, bounds[field])
        yield Swing(field, low, high, exact_price(_with(sheet, field, low)), exact_price(_with(sheet, field, high)))
    if sheet.has_tariff:
        mean = sheet.tariff.price_per_kwh
        low, high = mean * (1 - SWING), mean * (1 + SWING)
        prices = [exact_price(replace(sheet, tariff=flat(price))) for price in (low, high)]
        yield Swing("tariff", low, high, *prices)


def _ends(sheet: CostSheet, field: str, value: Fraction, bound: Bound) -> tuple[Fraction, Fraction]:
    """Return a tenth less and a tenth more, as far as the other inputs allow."""
    low, high = (_moved(value, sign, bound) for sign in (-1, 1))
    if field == "spare_gpus":
        high = min(high, sheet["installed_gpus"] - 1)
    if field == "installed_gpus":
        low = max(low, sheet.get("spare_gpus") + 1)
    if field == "cluster_capital":
        low = max(low, capital_per_gpu(sheet))
    if field == "rack_power_kw":
        low = max(low, power_kw(sheet) * sheet["gpus_per_server"])
    if field == "pool_gpus":
        high = min(high, sheet["cluster_gpus"])
    return low, high


def _moved(value: Fraction, sign: int, bound: Bound) -> Fraction:
    """Return a tenth more or less, within the range; at an end that the range excludes, return the value."""
    moved = value * (1 + sign * SWING)
    if bound.whole:
        moved = Fraction(ceil(moved) if sign > 0 else floor(moved))
    moved = min(max(moved, Fraction(bound.low)), Fraction(bound.high))
    return moved if bound.holds(moved) else value


def _with(sheet: CostSheet, field: str, value: Fraction) -> CostSheet:
    """Return the sheet with one number changed; a flat price of electricity is also the tariff."""
    tariff = flat(value) if field == "electricity_price_per_kwh" and not sheet.has_tariff else sheet.tariff
    return replace(sheet, numbers={**sheet.numbers, field: value}, tariff=tariff)


def at_sold_share(sheet: CostSheet, sold_share: Fraction) -> CostSheet:
    """Return the sheet with `sold_share` of the available hours sold.  Raises WhatIfError outside of (0, 1]."""
    if not 0 < sold_share <= 1:
        raise WhatIfError(Message(
            "sold_share: %(sold_share)s must be above 0 and at most 1: 65 %% is 0.65",
            sold_share=exact_decimal(sold_share, 4),
        ))
    return _with(sheet, "sold_share", sold_share)


def break_even(sheet: CostSheet, price: Fraction) -> Fraction | None:
    """Return U [ratio]: the sold share at which `price` per GPU-hour just recovers the cost; above 1 it never does.

    From P = (F / U + V) (1 + reserve): U = F / (P / (1 + reserve) - V). None where the price is not above V, the energy of
    a sold hour.  Source: FE3, break-even; with F the cost of an hour that is sold in full.
    """
    full = cost_of_gpu_hour(at_sold_share(sheet, Fraction(1)))
    apart = (*VARIABLE, *SURCHARGES)
    fixed = sum((part.cost_per_gpu_hour for part in full.components if part.name not in apart), Fraction(0))
    left = price / (1 + sheet.get("reserve_ratio")) - full.variable_cost
    return fixed / left if left > 0 else None


def simple_sheet(sheet: CostSheet) -> CostSheet:
    """Return the sheet with the inputs of the simple formulas alone (FS2-FS6), electricity at its mean price."""
    numbers = {field: number for field, number in sheet.numbers.items() if field in SIMPLE}
    price = sheet.tariff.price_per_kwh
    return CostSheet(
        sheet.accelerator, sheet.currency, {**numbers, "electricity_price_per_kwh": price, "markup": sheet.markup},
        flat(price), rent_includes_power=sheet.rent_includes_power,
    )  # fmt: skip


def compared(old: GpuHourCost, new: GpuHourCost) -> tuple[ComponentChange, ...]:
    """Compare two costs component by component, in the order of the new one."""
    before, after = ({part.name: part.cost_per_gpu_hour for part in cost.components} for cost in (old, new))
    return tuple(ComponentChange(name, before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before]))


def chart_data(sheet: CostSheet) -> dict[str, Any]:
    """Return the data of charts as decimal text: 12 decimals for costs, 4 for the sold share.

    `simple` and `complete` are the two models on the same inputs.
    """
    cost = cost_of_gpu_hour(sheet)
    share = break_even(sheet, Fraction(cost.price))
    simple = cost_of_gpu_hour(simple_sheet(sheet))
    return {
        "waterfall": [
            {"name": step.name, "start": exact_decimal(step.start), "amount": exact_decimal(step.amount)}
            for step in waterfall(cost)
        ],
        "sensitivity": [
            {"field": swing.field} | {name: exact_decimal(getattr(swing, name)) for name in SWUNG}
            for swing in sensitivity(sheet)
        ],
        "break_even_sold_share": None if share is None else exact_decimal(share, 4),
        "models": {
            name: {"cost_per_gpu_hour": exact_decimal(one.cost), "price_per_gpu_hour": format(one.price, "f")}
            for name, one in (("simple", simple), ("complete", cost))
        },
    }  # fmt: skip


def price_text(value: Fraction) -> str:
    """Format a price with the 4 decimals of the list."""
    return format(round_price(value), "f")
