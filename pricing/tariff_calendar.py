"""PURE: conversion of a time-of-use calendar (hours, seasons, critical peaks) to the tariff of a range of local days.

The load is spread over elapsed hours: a local day has 23 or 25 of them when the clock changes, and the hour that is skipped
or repeated counts with its price and its load.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from metering.intervals import Interval
from metering.messages import Message
from pricing.fields import Bound, FieldReader, exact_number, shown
from pricing.tariff import KWH, Tariff, TariffError, TariffPeriod, read_price

QUARTER: Final = timedelta(minutes=15)
"""Step of the calculation: offsets of zones are whole quarters of an hour, so no quarter crosses a change of the clock."""

LONGEST: Final = timedelta(days=367)
DAY: Final = tuple(range(24))
YEAR: Final = tuple(range(1, 13))
HOUR: Final = Bound("0", "24", "hour of the local day, 24 is its end", whole=True)
MONTH: Final = Bound("1", "12", "month of the year", whole=True)
FIELDS: Final = ("zone", "from", "until", "periods", "load_kw")
PERIOD_FIELDS: Final = ("name", "price_per_kwh", "ratio", "hours", "months")


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """Price by local hours of the day (0 to 23) and months (1 to 12)."""

    name: str
    price_per_kwh: Fraction
    hours: tuple[int, ...] = DAY
    months: tuple[int, ...] = YEAR

    def covers(self, local: datetime) -> bool:
        """Return True if a local clock time is priced by this period."""
        return local.hour in self.hours and local.month in self.months


def calendar_tariff(
    periods: Sequence[CalendarPeriod], window: Interval, zone: str, load_kw: Sequence[Fraction] | None = None
) -> Tariff:
    """Return the kWh of `window` in each period, with a load of 1 kW or one by local hour (24 values).

    The first period that covers an hour prices it, so a critical peak is before its peak.  Raises TariffError where
    none does.

    >>> from datetime import UTC
    >>> march = Interval(datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC))
    >>> calendar_tariff([CalendarPeriod("flat", Fraction(1))], march, "Europe/Berlin").weight
    Fraction(23, 1)

    Source: FE4, versioned hourly series per site.
    """
    load = [Fraction(1)] * len(DAY) if load_kw is None else load_kw
    here = ZoneInfo(zone)
    kwh = dict.fromkeys(range(len(periods)), Fraction(0))
    instant = window.start
    # by instants in UTC and not by local hours, of which one is missing or double when the clock changes
    while instant < window.end:
        length = min(QUARTER, window.end - instant)
        local = instant.astimezone(here)
        chosen = next((index for index, period in enumerate(periods) if period.covers(local)), None)
        if chosen is None:
            raise TariffError(Message(
                "no period prices %(hour)s: give one for every hour and month", hour=local.isoformat(timespec="minutes")
            ))
        kwh[chosen] += load[local.hour] * Fraction(length // timedelta(microseconds=1), 3_600_000_000)
        instant += length
    return Tariff(tuple(TariffPeriod(period.name, period.price_per_kwh, kwh[index]) for index, period in enumerate(periods)))


def is_calendar(given: object) -> bool:
    """Return True if a tariff is written as a calendar."""
    return isinstance(given, Mapping) and "zone" in given


def read_calendar(parent: FieldReader, name: str, base: Fraction | None) -> Tariff | None:
    """Read `{zone, from, until, periods: [{name, price_per_kwh or ratio, hours, months}], load_kw}`; None where refused.

    `from` and `until` are local days, the end not included; `hours` is a list of [first, end) pairs of local hours,
    `months` one of month numbers. `load_kw` has one value for each of the 24 local hours.
    """
    before = len(parent.problems)
    reader = parent.nested(parent.fields[name], "a tariff calendar", name)
    reader.finish(FIELDS)
    window = _window(reader, _zone(reader))
    load = reader.numbers("load_kw", KWH) if reader.has("load_kw") else None
    if load is not None and len(load) != len(DAY):
        reader.refuse("load_kw", Message(
            "has %(n)s values: give one for each of the 24 hours of the local day", n=len(load)
        ))
    periods = [
        _period(one, index, base)
        for index, one in enumerate(reader.mappings("periods", "a period of a calendar", required=True))
    ]
    if len(parent.problems) > before or window is None:
        return None
    given = None if load is None else [value for value in load if value is not None]
    try:
        return calendar_tariff([period for period in periods if period], window, reader.text("zone"), given)
    except TariffError as error:
        reader.refuse("periods", error.message)
        return None


def _zone(reader: FieldReader) -> str:
    zone = reader.text("zone")
    try:
        ZoneInfo(zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        reader.refuse("zone", Message("%(value)s must be a time zone such as Asia/Shanghai", value=shown(zone)))
        return ""
    return zone


def _window(reader: FieldReader, zone: str) -> Interval | None:
    days = [reader.day(name) if reader.text(name) else None for name in ("from", "until")]
    if days[0] is None or days[1] is None or not zone:
        return None
    if not timedelta(0) < days[1] - days[0] <= LONGEST:
        reader.refuse("until", Message.counted(
            "%(value)s must be after from %(start)s by at most %(days)s day",
            "%(value)s must be after from %(start)s by at most %(days)s days", LONGEST.days,
            value=days[1], start=days[0], days=LONGEST.days,
        ))
        return None
    start, end = (datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)) for day in days if day)
    return Interval(start, end)


def _period(reader: FieldReader, index: int, base: Fraction | None) -> CalendarPeriod | None:
    before = len(reader.problems)
    reader.finish(PERIOD_FIELDS)
    name = reader.text("name", default=f"period {index + 1}")
    price = read_price(reader, base)
    hours = _hours(reader) if reader.has("hours") else DAY
    months = tuple(int(month) for month in reader.numbers("months", MONTH) if month) if reader.has("months") else YEAR
    if len(reader.problems) > before or price is None:
        return None
    return CalendarPeriod(name, price, hours, months)


def _hours(reader: FieldReader) -> tuple[int, ...]:
    """Read the hours of [first, end) pairs; a pair may pass midnight."""
    found: set[int] = set()
    for pair in reader.each("hours"):
        ends = [exact_number(hour) for hour in pair] if isinstance(pair, list | tuple) else []
        if len(ends) != 2 or not all(hour is not None and HOUR.holds(hour) for hour in ends):
            reader.refuse("hours", Message("%(value)s must be a pair of hours, such as [10, 15]", value=shown(pair)))
            continue
        first, end = (int(hour) for hour in ends if hour is not None)
        if (end - first) % 24 == 0 and (first, end) != (0, 24):
            reader.refuse("hours", Message(
                "%(value)s is no time: the end is not included, and a whole day is [0, 24]", value=shown(pair)
            ))
            continue
        found.update(hour % 24 for hour in range(first, end if end > first else end + 24))
    return tuple(sorted(found))
