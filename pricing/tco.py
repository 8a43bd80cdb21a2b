"""PURE: cost sheet -> cost and price of a GPU-hour, component by component. Components add up to the cost, exactly.

The simple sheet (FS2-FS6) takes hardware, power, hosting and operations; markup is on cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

from pricing.money import round_price, round_to

HOURS_PER_YEAR: Final = 8760
COST_PLACES: Final = 12


class CostSheetError(ValueError):
    """A sheet that gives no cost; `messages` has one line per bad field."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


@dataclass(frozen=True, slots=True)
class Bound:
    """What a numeric field may hold. `hint` says what a value outside of it usually means."""

    low: str
    high: str
    unit: str
    hint: str = ""
    whole: bool = False
    above_low: bool = False


FIELDS: Final[dict[str, Bound]] = {
    "gpus_per_server": Bound("1", "64", "GPUs", whole=True),
    "server_price": Bound("0", "1e9", "currency per server without its GPUs"),
    "gpu_price": Bound("0", "1e8", "currency per GPU"),
    "network_price_per_port": Bound("0", "1e8", "currency per port"),
    "ports_per_gpu": Bound("0", "64", "ports"),
    "gpus_per_rack": Bound("1", "4096", "GPUs", whole=True),
    "cluster_gpus": Bound("1", "1e7", "GPUs", whole=True),
    "markup": Bound("0", "10", "ratio on cost", "10 % is 0.10"),
    "life_years": Bound("0", "50", "years", above_low=True),
    "gpu_power_kw": Bound("0", "20", "kW of one GPU", "700 W is 0.7"),
    "server_other_power_kw": Bound("0", "100", "kW of the rest of one server", "4600 W is 4.6"),
    "pue": Bound("1", "5", "ratio", "a building uses at least what its machines use"),
    "electricity_price_per_kwh": Bound("0", "1e4", "currency per kWh"),
    "rack_rent_per_month": Bound("0", "1e9", "currency per rack and month"),
    "bandwidth_per_month": Bound("0", "1e9", "currency per rack and month"),
    "labour_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "software_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "hours_per_month": Bound("600", "800", "hours", "730 x 12 is a year"),
}
DEFAULTS: Final = {"hours_per_month": "730"}
NAMES: Final = ("accelerator", "currency")


@dataclass(frozen=True)
class CostSheet:
    """A checked sheet: names, and numbers as exact rationals."""

    accelerator: str
    currency: str
    numbers: Mapping[str, Fraction]

    def __getitem__(self, field: str) -> Fraction:
        return self.numbers[field]


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the cost of a GPU-hour, with the inputs that it came from."""

    name: str
    cost_per_gpu_hour: Fraction
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class GpuHourCost:
    """Cost of one GPU-hour by component and its list price (4 decimals)."""

    accelerator: str
    currency: str
    components: tuple[Component, ...]
    markup: Fraction
    facility_kw: Decimal

    @property
    def cost(self) -> Fraction:
        """Sum of the components."""
        return sum((component.cost_per_gpu_hour for component in self.components), Fraction(0))

    @property
    def price(self) -> Decimal:
        """FS6: P = cost x (1 + markup), rounded once, to the 4 decimals of a price list."""
        return round_price(self.cost * (1 + self.markup))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of the contract: costs with 12 decimals, the price with 4.

        The shown components are rounded so that they add up to the shown cost.
        """
        return {
            "accelerator": self.accelerator,
            "currency": self.currency,
            "components": [
                {"name": part.name, "cost_per_gpu_hour": _shown(part.cost_per_gpu_hour)} for part in self.components
            ],
            "cost_per_gpu_hour": _shown(self.cost),
            "price_per_gpu_hour": format(self.price, "f"),
        }


def _shown(value: Fraction) -> str:
    return format(round_to(value, COST_PLACES), "f")


def parse_cost_sheet(fields: Mapping[str, Any]) -> CostSheet:
    """Check a sheet of text or numbers.  Raises CostSheetError with a message for every bad field at once."""
    messages: list[str] = []
    names = {name: str(fields.get(name, "")).strip() for name in NAMES}
    messages += [f"{name}: is missing" for name in NAMES if not names[name]]
    numbers: dict[str, Fraction] = {}
    for field, bound in FIELDS.items():
        given = fields.get(field, DEFAULTS.get(field))
        if given is None or given == "":
            messages.append(f"{field}: is missing ({bound.unit})")
            continue
        number = _number(given)
        problem = _problem(number, bound)
        if number is None or problem:
            messages.append(f"{field}: {given!r} {problem}")
            continue
        numbers[field] = number
    messages += [f"{field}: is no field of a cost sheet" for field in fields if field not in FIELDS | dict.fromkeys(NAMES)]
    if messages:
        raise CostSheetError(messages)
    return CostSheet(names["accelerator"], names["currency"], numbers)


def _number(given: object) -> Fraction | None:
    """A decimal string, integer or Decimal, exactly; a float is taken as it prints."""
    if isinstance(given, bool):
        return None
    try:
        number = Decimal(str(given).strip())
    except InvalidOperation:
        return None
    return Fraction(number) if number.is_finite() else None


def _problem(number: Fraction | None, bound: Bound) -> str:
    expected = f"must be a number from {bound.low} to {bound.high} ({bound.unit})"
    if bound.hint:
        expected += f": {bound.hint}"
    if number is None or not Fraction(bound.low) <= number <= Fraction(bound.high):
        return expected
    if bound.above_low and number == Fraction(bound.low):
        return f"must be above {bound.low} ({bound.unit})"
    if bound.whole and number.denominator != 1:
        return f"must be a whole number ({bound.unit})"
    return ""


def cost_of_gpu_hour(sheet: CostSheet) -> GpuHourCost:
    """Cost of one GPU-hour (FS2 to FS5) and what it is made of."""
    components = (
        Component("hardware", hardware_cost(sheet), ("server_price", "gpu_price", "network_price_per_port", "life_years")),
        Component("power", power_cost(sheet), ("gpu_power_kw", "server_other_power_kw", "pue", "electricity_price_per_kwh")),
        Component("hosting", hosting_cost(sheet), ("rack_rent_per_month", "bandwidth_per_month", "gpus_per_rack")),
        Component("operations", operations_cost(sheet), ("labour_per_month", "software_per_month", "cluster_gpus")),
    )
    facility_kw = round_to(power_kw(sheet) * sheet["pue"], 6)
    return GpuHourCost(sheet.accelerator, sheet.currency, components, sheet["markup"], facility_kw)


def capital_per_gpu(sheet: CostSheet) -> Fraction:
    """Purchase price of one GPU with its share of the server and its network ports."""
    return (
        sheet["server_price"] / sheet["gpus_per_server"]
        + sheet["gpu_price"]
        + sheet["ports_per_gpu"] * sheet["network_price_per_port"]
    )


def hardware_cost(sheet: CostSheet) -> Fraction:
    """FS2: C_hw = (K_server / n + K_gpu + k_port x p) / (L x 8760), per GPU-hour."""
    return capital_per_gpu(sheet) / (sheet["life_years"] * HOURS_PER_YEAR)


def power_kw(sheet: CostSheet) -> Fraction:
    """Power of one GPU with its share of the rest of the server, in kW at the rack."""
    return sheet["gpu_power_kw"] + sheet["server_other_power_kw"] / sheet["gpus_per_server"]


def power_cost(sheet: CostSheet) -> Fraction:
    """FS3: C_power = (w_gpu + w_other / n) x PUE x tariff, per GPU-hour."""
    return power_kw(sheet) * sheet["pue"] * sheet["electricity_price_per_kwh"]


def hosting_cost(sheet: CostSheet) -> Fraction:
    """FS4: C_idc = (rent + bandwidth) / (GPUs per rack x hours per month), per GPU-hour."""
    return (sheet["rack_rent_per_month"] + sheet["bandwidth_per_month"]) / (
        sheet["gpus_per_rack"] * sheet["hours_per_month"]
    )


def operations_cost(sheet: CostSheet) -> Fraction:
    """FS5: C_om = (labour + licences) / (GPUs of the cluster x hours per month), per GPU-hour."""
    return (sheet["labour_per_month"] + sheet["software_per_month"]) / (sheet["cluster_gpus"] * sheet["hours_per_month"])


def price_with_margin(cost: Fraction, margin: Fraction) -> Fraction:
    """Price that leaves `margin` of itself: cost / (1 - margin). Not the markup of FS6.

    >>> price_with_margin(Fraction(10), Fraction("0.20"))
    Fraction(25, 2)
    """
    return cost / (1 - margin)
