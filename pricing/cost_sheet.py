"""PURE: a cost sheet and what its fields may hold. Every bad field gets a message with its value and its range.

The ranges are chosen so that the usual slips fall outside of them: watts for kilowatts, percent for a ratio, months for
years, a price per MWh for one per kWh, servers for GPUs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pricing.fields import Bound, FieldReader, InputError, shown
from pricing.tariff import Tariff, flat, read_tariff
from pricing.tariff_calendar import is_calendar, read_calendar

SIMPLE: Final[dict[str, Bound]] = {
    "gpus_per_server": Bound("1", "1024", "GPUs", whole=True),
    "server_price": Bound("0", "1e9", "currency per server without its GPUs"),
    "gpu_price": Bound("0", "1e9", "currency per GPU"),
    "network_price_per_port": Bound("0", "1e8", "currency per port"),
    "ports_per_gpu": Bound("0", "64", "ports"),
    "gpus_per_rack": Bound("1", "4096", "GPUs", whole=True),
    "cluster_gpus": Bound("1", "1e7", "GPUs", whole=True),
    "markup": Bound("0", "2", "ratio on cost", "10 % is 0.10"),
    "life_years": Bound("0", "20", "years", "60 months are 5", above_low=True),
    "gpu_power_kw": Bound("0", "20", "kW of one GPU", "700 W is 0.7"),
    "server_other_power_kw": Bound("0", "200", "kW of the rest of one server", "4600 W is 4.6"),
    "pue": Bound("1", "5", "ratio", "a building uses at least what its machines use"),
    "electricity_price_per_kwh": Bound("0", "1e4", "currency per kWh"),
    "rack_rent_per_month": Bound("0", "1e9", "currency per rack and month"),
    "bandwidth_per_month": Bound("0", "1e9", "currency per rack and month"),
    "labour_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "software_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "hours_per_month": Bound("600", "800", "hours", "730 x 12 is a year"),
}
"""Required, but where a default stands."""

DEFAULTS: Final = {"hours_per_month": "730"}

COMPLETE: Final[dict[str, Bound]] = {
    "residual_ratio": Bound("0", "1", "ratio of the purchase price", "10 % is 0.10", below_high=True),
    "cost_of_capital": Bound("0", "1", "ratio per year", "8 % is 0.08", below_high=True),
    "maintenance_ratio_per_year": Bound("0", "1", "ratio of the purchase price per year", "4 % is 0.04", below_high=True),
    "installed_gpus": Bound("1", "1e7", "GPUs", whole=True),
    "spare_gpus": Bound("0", "1e7", "GPUs", whole=True),
    "availability": Bound("0", "1", "ratio of the hours", "98 % is 0.98", above_low=True),
    "sold_share": Bound("0", "1", "ratio of the available hours", "70 % is 0.70", above_low=True),
    "demand_charge_per_kw_month": Bound("0", "1e6", "currency per kW and month"),
    "fabric_price": Bound("0", "1e12", "currency for the whole fabric"),
    "fabric_gpus": Bound("1", "1e7", "GPUs on the fabric", whole=True),
    "scratch_tb_per_gpu": Bound("0", "1e4", "decimal TB per GPU"),
    "storage_price_per_tb_month": Bound("0", "1e7", "currency per TB and month"),
    "metered_kwh_per_gpu_hour": Bound("0", "20", "kWh per GPU-hour before PUE", "1275 Wh are 1.275", above_low=True),
    "reserve_ratio": Bound("0", "1", "ratio of the cost", "5 % is 0.05", below_high=True),
}
"""Optional."""

TOGETHER: Final = (
    ("spare_gpus", "installed_gpus"),
    ("fabric_price", "fabric_gpus"),
    ("scratch_tb_per_gpu", "storage_price_per_tb_month"),
)
"""Neither says anything without the other, but for installed GPUs of which none are spare."""

NAMES: Final = ("accelerator", "currency")
CURRENCY: Final = re.compile(r"[A-Z]{3}\Z")
DEAR_CURRENCIES: Final = ("AUD", "CAD", "CHF", "CNY", "EUR", "GBP", "HKD", "RMB", "SGD", "USD")
DEAREST_KWH: Final = 10
"""Above it, a price in one of these currencies is per MWh or in cents."""


class CostSheetError(InputError):
    """A sheet that gives no cost; `messages` has one line per bad field."""


@dataclass(frozen=True)
class CostSheet:
    """A checked sheet: names, numbers as exact rationals, and the electricity tariff."""

    accelerator: str
    currency: str
    numbers: Mapping[str, Fraction]
    tariff: Tariff
    has_tariff: bool = False

    def __getitem__(self, field: str) -> Fraction:
        return self.numbers[field]

    def has(self, field: str) -> bool:
        """Whether the optional field was given."""
        return field in self.numbers

    def get(self, field: str, default: int = 0) -> Fraction:
        """The optional field, or `default`."""
        return self.numbers.get(field, Fraction(default))


def parse_cost_sheet(fields: object) -> CostSheet:
    """Check a mapping of text or numbers.  Raises CostSheetError with a message for every bad field at once."""
    reader = FieldReader(fields, "a cost sheet")
    if reader.problems:
        raise CostSheetError(reader.problems)
    accelerator, currency = reader.text("accelerator"), _currency(reader)
    numbers = _numbers(reader)
    tariff = _tariff(reader, numbers, currency)
    _refuse_contradictions(reader, numbers)
    reader.finish([*NAMES, *SIMPLE, *COMPLETE, "tariff"])
    if reader.problems or tariff is None:
        raise CostSheetError(reader.problems)
    return CostSheet(accelerator, currency, numbers, tariff, reader.has("tariff"))


def _currency(reader: FieldReader) -> str:
    currency = reader.text("currency")
    if currency and not CURRENCY.match(currency):
        reader.refuse("currency", f"{currency!r} must be three capital letters such as CNY")
    return currency


def _numbers(reader: FieldReader) -> dict[str, Fraction]:
    numbers: dict[str, Fraction | None] = {}
    for field, bound in SIMPLE.items():
        if field == "electricity_price_per_kwh" and reader.has("tariff"):
            numbers[field] = reader.optional(field, bound)
        else:
            numbers[field] = reader.number(field, bound, DEFAULTS.get(field))
    for field, bound in COMPLETE.items():
        numbers[field] = reader.optional(field, bound)
    return {field: number for field, number in numbers.items() if number is not None}


def _tariff(reader: FieldReader, numbers: dict[str, Fraction], currency: str) -> Tariff | None:
    """The tariff of the sheet; a `tariff` takes the place of the flat price, which is then the base of its ratios."""
    base = numbers.get("electricity_price_per_kwh")
    field = "tariff" if reader.has("tariff") else "electricity_price_per_kwh"
    if field == "tariff":
        read = read_calendar if is_calendar(reader.fields[field]) else read_tariff
        tariff = read(reader, field, base)
    else:
        tariff = flat(base) if base is not None else None
    if tariff is not None:
        _refuse_mean(reader, field, tariff.price_per_kwh, currency)
    return tariff


def _refuse_mean(reader: FieldReader, field: str, mean: Fraction, currency: str) -> None:
    """Single hours may cost less than nothing on a market, their mean may not."""
    given = "the mean price" if field == "tariff" else shown(reader.fields[field])
    if mean < 0:
        reader.refuse(field, f"{given} must not be below 0 ({currency} per kWh)")
    elif mean > DEAREST_KWH and currency in DEAR_CURRENCIES:
        reader.refuse(field, f"{given} must be a number from 0 to {DEAREST_KWH} ({currency} per kWh): 650 per MWh is 0.65")


def _refuse_contradictions(reader: FieldReader, numbers: Mapping[str, Fraction]) -> None:
    for field, other in TOGETHER:
        if reader.has(field) and not reader.has(other):
            reader.refuse(other, f"is missing, but {field} is given")
        if reader.has(other) and not reader.has(field) and other != "installed_gpus":
            reader.refuse(field, f"is missing, but {other} is given")
    installed, spare = numbers.get("installed_gpus"), numbers.get("spare_gpus")
    if installed is not None and spare is not None and spare >= installed:
        reader.refuse("spare_gpus", f"{spare} must be below installed_gpus {installed}")
    per_server = numbers.get("gpus_per_server")
    for field in ("gpus_per_rack", "cluster_gpus"):
        count = numbers.get(field)
        if count is not None and per_server is not None and count < per_server:
            reader.refuse(field, f"{count} must be at least gpus_per_server {per_server}: it counts GPUs, not servers")
