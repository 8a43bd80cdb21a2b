"""PURE: terms of a cost sheet for the price list: list currency with a dated rate, last year's true-up, tiers.

The terms apply after cost and markup: the price of the sheet is in the sheet's currency, the list price follows from it.
The sheet stores them, so that a published price shows its exchange rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final

from metering.messages import Message, UserError
from pricing.fields import Bound, FieldReader
from pricing.money import Number, exact_decimal, fraction_of, round_price

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


class AdjustmentError(UserError, ValueError):
    """Terms that give no valid list price."""

    code = "price_adjustment"


def converted_list_price(price: Number, rate: Number) -> Decimal:
    """Return the list price in the billing currency: converted once, rounded once; exchange differences are the provider's.

    >>> converted_list_price(Decimal("1.65"), Decimal("7.1234"))
    Decimal('11.7536')

    Source: FE10, currency.
    """
    return round_price(fraction_of(price) * fraction_of(rate))


def true_up(actual_cost: Number, recovered: Number, planned_gpu_hours: Number) -> Fraction:
    """Return the change of next year's price = (actual cost - recovered) / planned GPU-hours; a surplus lowers it.

    >>> true_up(10_000_000, 9_400_000, 1_200_000)
    Fraction(1, 2)

    Source: FE11, annual true-up as in university recharge rules.
    """
    return (fraction_of(actual_cost) - fraction_of(recovered)) / fraction_of(planned_gpu_hours)


@dataclass(frozen=True)
class Listing:
    """Checked listing terms; without terms the list shows the price of the sheet. `currency`: "" for that of the sheet."""

    currency: str = ""
    rate_date: date | None = None
    numbers: Mapping[str, Fraction] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.currency or self.numbers)

    @property
    def exchange_rate(self) -> Fraction:
        """Return the list currency per unit of the sheet's currency."""
        return self.numbers.get("exchange_rate", Fraction(1))

    @property
    def true_up(self) -> Fraction:
        """Return last year's true-up per GPU-hour, in the currency of the sheet; a surplus is negative."""
        if "planned_gpu_hours" not in self.numbers:
            return Fraction(0)
        return true_up(*(self.numbers[name] for name in LAST_YEAR))

    def prices(self, price: Fraction, variable_cost: Fraction) -> dict[str, Decimal]:
        """Return list prices by tier: last year's true-up added, converted once, rounded once; on demand first.

        Both arguments per GPU-hour, exact, in the sheet's currency. Tiers are ratios of the on-demand price; pre-emptible
        never falls below the variable cost: the amount above it contributes to fixed cost, but is not part of the planned
        sold share.

        >>> Listing(numbers={"preemptible_ratio": Fraction("0.4")}).prices(Fraction(10), Fraction("4.5"))
        {'on_demand': Decimal('10.0000'), 'preemptible': Decimal('4.5000')}

        Raises AdjustmentError where last year's surplus is more than the price.  Source: FE10, FE11, FE13.
        """
        whole = price + self.true_up
        if whole < 0:
            raise AdjustmentError(Message("last year's surplus, spread over the planned GPU-hours, is more than the price"))
        on_demand = converted_list_price(whole, self.exchange_rate)
        prices = {ON_DEMAND: on_demand}
        if "reserved_ratio" in self.numbers:
            # of the rounded on-demand price, so that the ratio holds between the printed prices
            prices["reserved"] = round_price(Fraction(on_demand) * self.numbers["reserved_ratio"])
        if "preemptible_ratio" in self.numbers:
            floor = variable_cost * self.exchange_rate
            prices["preemptible"] = round_price(max(Fraction(on_demand) * self.numbers["preemptible_ratio"], floor))
        return prices

    def price_of_sheet(self, listed: Fraction) -> Fraction:
        """Return the price of the sheet behind a list price: without conversion and true-up."""
        return listed / self.exchange_rate - self.true_up

    def as_dict(self, currency: str) -> dict[str, str]:
        """Return the terms behind the list prices as text; `currency` is that of the sheet."""
        terms = {"currency": self.currency or currency}
        if self.rate_date is not None:
            terms |= {"exchange_rate": exact_decimal(self.exchange_rate, 8), "rate_date": self.rate_date.isoformat()}
        if "planned_gpu_hours" in self.numbers:
            terms["true_up_per_gpu_hour"] = exact_decimal(self.true_up)
        return terms


def read_listing(reader: FieldReader, currency: str) -> Listing:
    """Read the listing terms of a cost sheet in `currency`; problems are noted with the reader."""
    reader.together(*CONVERSION)
    reader.together(*LAST_YEAR)
    numbers = reader.given(NUMBERS)
    listed = reader.currency("list_currency", default="")
    if listed and listed == currency:
        reader.refuse("list_currency", Message(
            "%(value)s must differ from currency: the sheet is in it already", value=repr(listed)
        ))
    return Listing(listed, reader.day("rate_date"), numbers)
