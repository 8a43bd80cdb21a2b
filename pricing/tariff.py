"""PURE: mean price of a kWh for a load: flat, by named periods, or by an hourly series (FE4).

A tariff is a versioned series per site: periods differ by province and change by month, and users who buy on the market
have no fixed periods. A flat load gains nothing from averaging; a load that can be shifted does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message, UserError
from pricing.fields import Bound, FieldReader, exact_number

PRICE: Final = Bound("-1e4", "1e4", "currency per kWh")
RATIO: Final = Bound("0", "100", "multiple of electricity_price_per_kwh")
KWH: Final = Bound("0", "1e12", "kWh")
WEIGHTS: Final = {"hours": Bound("0", "8784", "hours"), "kwh": KWH}
SERIES: Final = ("hourly", "load_kwh")
PERIOD_FIELDS: Final = ("name", "price_per_kwh", "ratio", "hours", "kwh")


class TariffError(UserError, ValueError):
    """Periods without weight."""

    code = "tariff"


@dataclass(frozen=True, slots=True)
class TariffPeriod:
    """Part of the load: its price and its weight in kWh (or in hours, for a flat load)."""

    name: str
    price_per_kwh: Fraction
    weight: Fraction


@dataclass(frozen=True, slots=True)
class Tariff:
    """Electricity tariff: periods with their prices and the load in each."""

    periods: tuple[TariffPeriod, ...]

    def __post_init__(self) -> None:
        if any(period.weight < 0 for period in self.periods) or self.weight <= 0:
            raise TariffError(Message("the periods of a tariff need hours or kWh that sum above 0"))

    @property
    def weight(self) -> Fraction:
        """Return the sum of the weights."""
        return sum((period.weight for period in self.periods), Fraction(0))

    @property
    def price_per_kwh(self) -> Fraction:
        """Return tariff [currency/kWh] = sum of kWh x price / sum of kWh.

        >>> day = Tariff(tuple(
        ...     TariffPeriod(name, Fraction("0.65") * Fraction(ratio), Fraction(kwh))
        ...     for name, ratio, kwh in (("peak", "1.6", 20), ("flat", "1", 30), ("valley", "0.4", 50))
        ... ))
        >>> day.price_per_kwh == Fraction("0.533")
        True

        Source: FE4, load-weighted average of a time-of-use tariff.
        """
        return sum((period.weight * period.price_per_kwh for period in self.periods), Fraction(0)) / self.weight


def flat(price_per_kwh: Fraction) -> Tariff:
    """Return a tariff with one price at every hour."""
    return Tariff((TariffPeriod("flat", price_per_kwh, Fraction(1)),))


def demand_charge_per_gpu_hour(facility_kw: Fraction, charge_per_kw_month: Fraction, hours_per_month: Fraction) -> Fraction:
    """Return the demand charge of a two-part tariff: C_demand [currency/GPU-h] = kW x PUE x charge / H_month.

    >>> demand_charge_per_gpu_hour(Fraction("1.275") * Fraction("1.3"), Fraction(40), Fraction(730))
    Fraction(663, 7300)

    Source: FE4, demand charge of two-part electricity users.
    """
    return facility_kw * charge_per_kw_month / hours_per_month


def read_tariff(reader: FieldReader, name: str, base: Fraction | None) -> Tariff | None:
    """Read a tariff: a number, a list of hourly prices, or periods; None where a problem was noted.

    Periods are a mapping name -> fields or a list of fields with `name`. Each has `price_per_kwh`, or `ratio` of the
    flat price `base`, and the load as `kwh` or (flat load) `hours`. A series is `{hourly: [...], load_kwh: [...]}`.
    """
    before = len(reader.problems)
    given = reader.fields[name]
    if isinstance(given, Mapping) and "periods" in given:
        reader.nested(given, "a tariff", name).finish(("periods",))
        given = given["periods"]
    if exact_number(given) is not None:
        price = reader.optional(name, PRICE)
        return flat(price) if price is not None else None
    if isinstance(given, list) and not any(isinstance(item, Mapping) for item in given):
        given = {"hourly": given}
    is_series = isinstance(given, Mapping) and any(field in given for field in SERIES)
    parsed = _series(reader, name, given) if is_series else _periods(reader, name, given, base)
    if len(reader.problems) > before:
        return None
    try:
        return Tariff(parsed)
    except TariffError as error:
        reader.refuse(name, error.message)
        return None


def _series(reader: FieldReader, name: str, given: Mapping[str, Any]) -> tuple[TariffPeriod, ...]:
    series = reader.nested(given, "an hourly tariff", name)
    series.finish(SERIES)
    prices = series.numbers("hourly", PRICE)
    flat_load: list[Fraction | None] = [Fraction(1)] * len(prices)
    load = series.numbers("load_kwh", KWH) if series.has("load_kwh") else flat_load
    if len(load) != len(prices):
        series.refuse("load_kwh", Message.counted(
            "has %(n)s hour, hourly has %(prices)s: give one load for each price",
            "has %(n)s hours, hourly has %(prices)s: give one load for each price", len(load),
            n=len(load), prices=len(prices),
        ))
        return ()
    return tuple(
        TariffPeriod(f"hour {hour}", price, kwh)
        for hour, (price, kwh) in enumerate(zip(prices, load, strict=True))
        if price is not None and kwh is not None
    )


def _periods(reader: FieldReader, name: str, given: object, base: Fraction | None) -> tuple[TariffPeriod, ...]:
    if not isinstance(given, Mapping | list):
        reader.refuse(name, Message(
            "must be a price, a list of hourly prices, or periods with price_per_kwh and hours or kwh"
        ))
        return ()
    items: Iterable[tuple[str | int, Any]] = given.items() if isinstance(given, Mapping) else enumerate(given)
    readers = [(key, reader.nested(item, "a tariff period", name, key)) for key, item in items]
    weighed = [[field for field in WEIGHTS if one.has(field)] for _, one in readers]
    if len({fields[0] for fields in weighed if len(fields) == 1}) > 1:
        reader.refuse(name, Message("gives hours for some periods and kwh for others: weigh all by the same"))
    periods = [_period(one, key, base) for key, one in readers]
    return tuple(period for period in periods if period)


def _period(reader: FieldReader, key: str | int, base: Fraction | None) -> TariffPeriod | None:
    reader.finish(PERIOD_FIELDS)
    name, price = reader.text("name", default=str(key)), read_price(reader, base)
    given = [field for field in WEIGHTS if reader.has(field)]
    if len(given) != 1:
        reader.refuse("hours", Message("give either hours or kwh of the period"))
        return None
    weight = reader.number(given[0], WEIGHTS[given[0]])
    return TariffPeriod(name, price, weight) if price is not None and weight is not None else None


def read_price(reader: FieldReader, base: Fraction | None) -> Fraction | None:
    """Read the price of a kWh: `price_per_kwh`, or `ratio` of the flat price `base`; None where a problem was noted."""
    if reader.has("price_per_kwh") == reader.has("ratio"):
        reader.refuse("price_per_kwh", Message("give either price_per_kwh or ratio of the period"))
        return None
    if reader.has("price_per_kwh"):
        return reader.number("price_per_kwh", PRICE)
    ratio = reader.number("ratio", RATIO)
    if base is None:
        reader.refuse("ratio", Message("is a multiple of electricity_price_per_kwh, which is missing or bad"))
    return None if ratio is None or base is None else ratio * base
