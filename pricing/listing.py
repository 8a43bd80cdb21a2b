"""PURE: what a cost sheet says about the price list: its currency with the rate of a day, last year's true-up, tiers.

They come after cost and markup: the price of the sheet is in the sheet's currency, what stands in the list follows from it.
Kept in the sheet, so that a published price still tells at which rate it was converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final

from metering.messages import Message
from pricing.adjustments import list_prices, true_up
from pricing.fields import Bound, FieldReader
from pricing.money import CURRENCY, exact_decimal

RATE: Final = Bound("0", "1e6", "billing currency per unit of the sheet's", above_low=True)
TIER: Final = Bound("0", "1", "ratio of the on-demand price", "80 % is 0.80", above_low=True)
MONEY: Final = Bound("0", "1e15", "currency of the sheet")
HOURS: Final = Bound("0", "1e12", "GPU-hours", above_low=True)
NUMBERS: Final[dict[str, Bound]] = {
    "exchange_rate": RATE, "actual_cost": MONEY, "recovered": MONEY, "planned_gpu_hours": HOURS,
    "reserved_ratio": TIER, "preemptible_ratio": TIER,
}  # fmt: skip
CONVERSION: Final = ("list_currency", "exchange_rate", "rate_date")
LAST_YEAR: Final = ("actual_cost", "recovered", "planned_gpu_hours")
FIELDS: Final = (*CONVERSION, *LAST_YEAR, "reserved_ratio", "preemptible_ratio")
ON_DEMAND: Final = "on_demand"


@dataclass(frozen=True)
class Listing:
    """The checked terms; empty, the list shows the price of the sheet. `currency`: empty for that of the sheet."""

    currency: str = ""
    rate_date: date | None = None
    numbers: Mapping[str, Fraction] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.currency or self.numbers)

    @property
    def exchange_rate(self) -> Fraction:
        """Currency of the list per unit of the sheet's."""
        return self.numbers.get("exchange_rate", Fraction(1))

    @property
    def true_up(self) -> Fraction:
        """What last year adds to the price of a GPU-hour, in the currency of the sheet; a surplus is negative."""
        if "planned_gpu_hours" not in self.numbers:
            return Fraction(0)
        return true_up(*(self.numbers[name] for name in LAST_YEAR))

    def prices(self, price: Fraction, variable_cost: Fraction) -> dict[str, Decimal]:
        """What the list says by tier, on demand first; both arguments per GPU-hour, exact, in the sheet's currency.

        Raises AdjustmentError where last year's surplus is more than the price.  Source: FE10, FE11, FE13.
        """
        return list_prices(
            price, variable_cost, true_up=self.true_up, exchange_rate=self.exchange_rate,
            reserved=self.numbers.get("reserved_ratio"), preemptible=self.numbers.get("preemptible_ratio"),
        )  # fmt: skip

    def price_of_sheet(self, listed: Fraction) -> Fraction:
        """The price of the sheet that `listed` in the list comes from: without conversion and true-up."""
        return listed / self.exchange_rate - self.true_up

    def told(self, currency: str) -> dict[str, str]:
        """What the prices of the list were made with, as text; `currency` is that of the sheet."""
        told = {"currency": self.currency or currency}
        if self.rate_date is not None:
            told |= {"exchange_rate": exact_decimal(self.exchange_rate, 8), "rate_date": self.rate_date.isoformat()}
        if "planned_gpu_hours" in self.numbers:
            told["true_up_per_gpu_hour"] = exact_decimal(self.true_up)
        return told


def read_listing(reader: FieldReader, currency: str) -> Listing:
    """The terms of a cost sheet in `currency`; problems are noted with the reader."""
    reader.together(*CONVERSION)
    reader.together(*LAST_YEAR)
    numbers = {name: reader.optional(name, bound) for name, bound in NUMBERS.items()}
    listed = reader.text("list_currency", default="")
    if listed and not CURRENCY.match(listed):
        reader.refuse("list_currency", Message("%(value)s must be three capital letters such as CNY", value=repr(listed)))
    elif listed and listed == currency:
        reader.refuse("list_currency", Message(
            "%(value)s must differ from currency: the sheet is in it already", value=repr(listed)
        ))
    known = {name: number for name, number in numbers.items() if number is not None}
    return Listing(listed, reader.day("rate_date"), known)
