"""When a month's devices and tokens were used: sums by hour of the week of all that its lines name."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from itertools import product

from billing.closing.previews import HoursOf, TeamContent, WeekUse
from billing.invoices.models import BillingPeriod
from billing.usage.gpu_time_by_job import WeekHours, devices_by_week_hour, tokens_by_week_hour
from metering.intervals import Interval
from pricing.rating import LineKey

HOURS = list(product(range(7), range(24)))


def weekly_usage_profile(period: BillingPeriod, teams: Iterable[TeamContent], now: datetime) -> WeekUse | None:
    """Use until `now` of the namespaces and consumers of what is charged, or where nothing is, of what is only shown.

    None before the month begins.
    """
    until, contents = min(period.end, now), list(teams)
    if until <= period.start:
        return None
    charged = [line.key for content in contents for line in content.charged]
    keys = charged or [line.key for content in contents for line in content.shadow]
    places, consumers = named_by(keys)
    window = Interval(period.start, until)
    devices = devices_by_week_hour(window, period.zone, places)
    tokens = tokens_by_week_hour(window, period.zone, consumers)
    return WeekUse(
        until, [HoursOf(name, _listed(found)) for name, found in devices.items()],
        [HoursOf((name,), _listed(found)) for name, found in tokens.items()],
    )  # fmt: skip


def named_by(keys: Iterable[LineKey]) -> tuple[set[tuple[str, str]], set[str]]:
    """The namespaces (with their clusters) and consumers of lines; what corrects other months names no use of this one."""
    places, consumers = set(), set()
    for key in keys:
        if not key.correction and key.what.on_demand and not key.counts_tokens:
            places.add((key.cluster, key.namespace))
        elif not key.correction and key.counts_tokens:
            consumers.add(key.consumer)
    return places, consumers


def _listed(found: WeekHours) -> list[Decimal]:
    return [found.get(hour, Decimal(0)) for hour in HOURS]


def of_hours(listed: Iterable[Decimal]) -> WeekHours:
    """The list again by weekday and hour."""
    return dict(zip(HOURS, listed, strict=True))
