"""PURE: what a kWh costs on average for a load: flat, by named periods, or by an hourly series (FE4).

A tariff is a versioned series per site: periods differ by province and change by month, and users who buy on the market
have no fixed periods at all. A flat load gains nothing from averaging; a load that can be shifted does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message, UserError
from pricing.fields import Bound, FieldReader, exact_number

PRICE: Final = Bound("-1e4", "1e4", "currency per kWh")
RATIO: Final = Bound("0", "100", "multiple of electricity_price_per_kwh")
HOURS: Final = Bound("0", "8784", "hours")
KWH: Final = Bound("0", "1e12", "kWh")
SERIES: Final = ("hourly", "load_kwh")
PERIOD_FIELDS: Final = ("name", "price_per_kwh", "ratio", "hours", "kwh")


class TariffError(UserError, ValueError):
    """Periods that have no weight, or a critical peak longer than its peak."""

    code = "tariff"


@dataclass(frozen=True, slots=True)
class TariffPeriod:
    """Part of the load: its price and its weight in kWh (or in hours, for a flat load)."""

    name: str
    price_per_kwh: Fraction
    weight: Fraction


@dataclass(frozen=True, slots=True)
class Tariff:
    """Periods with their prices and the load that falls into each."""

    periods: tuple[TariffPeriod, ...]

    def __post_init__(self) -> None:
        if any(period.weight < 0 for period in self.periods) or self.weight <= 0:
            raise TariffError(Message("the periods of a tariff need hours or kWh that sum above 0"))

    @property
    def weight(self) -> Fraction:
        """Sum of the weights."""
        return sum((period.weight for period in self.periods), Fraction(0))

    @property
    def price_per_kwh(self) -> Fraction:
        """Tariff [currency/kWh] = sum of kWh x price / sum of kWh.

        >>> day = named_periods(Fraction("0.65"), {"peak": ("1.6", 20), "flat": ("1", 30), "valley": ("0.4", 50)})
        >>> day.price_per_kwh == Fraction("0.533")
        True

        Source: FE4, load-weighted average of a time-of-use tariff.
        """
        return sum((period.weight * period.price_per_kwh for period in self.periods), Fraction(0)) / self.weight


def flat(price_per_kwh: Fraction) -> Tariff:
    """The same price at every hour."""
    return Tariff((TariffPeriod("flat", price_per_kwh, Fraction(1)),))


def named_periods(base: Fraction, periods: Mapping[str, tuple[Any, Any]]) -> Tariff:
    """Periods as name -> (multiple of `base`, hours or kWh)."""
    return Tariff(
        tuple(
            TariffPeriod(name, base * Fraction(multiple), Fraction(weight))
            for name, (multiple, weight) in periods.items()
        )
    )


def hourly_series(prices_per_kwh: Sequence[Fraction], load_kwh: Sequence[Fraction] | None = None) -> Tariff:
    """One price per hour, with the load of each hour; without it the load is flat.  Raises TariffError.

    >>> hourly_series([Fraction(1), Fraction(3)], [Fraction(3), Fraction(1)]).price_per_kwh
    Fraction(3, 2)
    """
    load = [Fraction(1)] * len(prices_per_kwh) if load_kwh is None else load_kwh
    if len(load) != len(prices_per_kwh):
        raise TariffError(Message(
            "%(prices)s hourly prices but %(load)s hourly loads", prices=len(prices_per_kwh), load=len(load)
        ))
    return Tariff(
        tuple(
            TariffPeriod(f"hour {hour}", price, kwh)
            for hour, (price, kwh) in enumerate(zip(prices_per_kwh, load, strict=True))
        )
    )


def with_critical_peak(tariff: Tariff, *, peak: str, weight: Fraction, uplift: Fraction) -> Tariff:
    """`weight` of the period named `peak` costs `uplift` more, for example 3 of 8 peak hours +20 %.

    Raises TariffError where no such period exists or it is shorter.
    """
    normal = next((period for period in tariff.periods if period.name == peak), None)
    if normal is None or not 0 <= weight <= normal.weight:
        raise TariffError(Message(
            "no period %(peak)s that could hold a critical peak of %(weight)s", peak=repr(peak), weight=weight
        ))
    critical = TariffPeriod(f"critical {peak}", normal.price_per_kwh * (1 + uplift), weight)
    kept = TariffPeriod(peak, normal.price_per_kwh, normal.weight - weight)
    return Tariff((*(kept if period is normal else period for period in tariff.periods), critical))


def demand_charge_per_gpu_hour(facility_kw: Fraction, charge_per_kw_month: Fraction, hours_per_month: Fraction) -> Fraction:
    """Two-part tariff: C_demand [currency/GPU-h] = kW x PUE x charge / H_month.

    >>> demand_charge_per_gpu_hour(Fraction("1.275") * Fraction("1.3"), Fraction(40), Fraction(730))
    Fraction(663, 7300)

    Source: FE4, demand charge of two-part electricity users.
    """
    return facility_kw * charge_per_kw_month / hours_per_month


def read_tariff(reader: FieldReader, name: str, base: Fraction | None) -> Tariff | None:
    """The tariff of a field: a number, a list of hourly prices, or periods; None where a problem was noted.

    Periods are a mapping name -> fields or a list of fields with `name`. Each has `price_per_kwh`, or `ratio` of the
    flat price `base`, and the load as `kwh` or (flat load) `hours`. A series is `{hourly: [...], load_kwh: [...]}`.
    """
    before = len(reader.problems)
    given = reader.fields[name]
    if isinstance(given, Mapping) and "periods" in given:
        given = _only(reader, name, given, "periods")
    if exact_number(given) is not None:
        price = reader.optional(name, PRICE)
        return flat(price) if price is not None else None
    if isinstance(given, list) and not any(isinstance(item, Mapping) for item in given):
        given = {"hourly": given}
    parsed = _series(reader, name, given) if _is_series(given) else _periods(reader, name, given, base)
    if len(reader.problems) > before or parsed is None:
        return None
    try:
        return Tariff(parsed)
    except TariffError as error:
        reader.refuse(name, error.message)
        return None


def _only(reader: FieldReader, name: str, given: Mapping[str, Any], field: str) -> Any:
    reader.nested(given, "a tariff", name).finish((field,))
    return given[field]


def _is_series(given: object) -> bool:
    return isinstance(given, Mapping) and any(field in given for field in SERIES)


def _series(reader: FieldReader, name: str, given: Mapping[str, Any]) -> tuple[TariffPeriod, ...] | None:
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
        return None
    return tuple(
        TariffPeriod(f"hour {hour}", price, kwh)
        for hour, (price, kwh) in enumerate(zip(prices, load, strict=True))
        if price is not None and kwh is not None
    )


def _periods(reader: FieldReader, name: str, given: object, base: Fraction | None) -> tuple[TariffPeriod, ...] | None:
    items: list[tuple[str | int, Any]]
    if isinstance(given, Mapping):
        items = list(given.items())
    elif isinstance(given, list):
        items = list(enumerate(given))
    else:
        reader.refuse(name, Message(
            "must be a price, a list of hourly prices, or periods with price_per_kwh and hours or kwh"
        ))
        return None
    periods = [_period(reader.nested(item, "a tariff period", name, key), key, base) for key, item in items]
    if len({period.weight_in for period in periods if period}) > 1:
        reader.refuse(name, Message("gives hours for some periods and kwh for others: weigh all by the same"))
    return tuple(period.period for period in periods if period)


@dataclass(frozen=True, slots=True)
class _Weighed:
    period: TariffPeriod
    weight_in: str


def _period(reader: FieldReader, key: str | int, base: Fraction | None) -> _Weighed | None:
    reader.finish(PERIOD_FIELDS)
    name = reader.text("name", default=str(key))
    price = _period_price(reader, base)
    given = [field for field in ("hours", "kwh") if reader.has(field)]
    if len(given) != 1:
        reader.refuse("hours", Message("give either hours or kwh of the period"))
        return None
    weight = reader.number(given[0], HOURS if given[0] == "hours" else KWH)
    return _Weighed(TariffPeriod(name, price, weight), given[0]) if price is not None and weight is not None else None


def _period_price(reader: FieldReader, base: Fraction | None) -> Fraction | None:
    if reader.has("price_per_kwh") == reader.has("ratio"):
        reader.refuse("price_per_kwh", Message("give either price_per_kwh or ratio of the period"))
        return None
    if reader.has("price_per_kwh"):
        return reader.number("price_per_kwh", PRICE)
    ratio = reader.number("ratio", RATIO)
    if base is None:
        reader.refuse("ratio", Message("is a multiple of electricity_price_per_kwh, which is missing or bad"))
        return None
    return ratio * base if ratio is not None else None
