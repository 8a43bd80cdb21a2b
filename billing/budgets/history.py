"""Reads of the stored past: spending per local day of a scope, of a team's SKU, and of its peers."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db.models import Max

from billing.budgets.models import SpendDay
from billing.budgets.scope import Scope
from billing.budgets.spending import Spent, spent_in
from metering.intervals import Interval

DAY = timedelta(days=1)
REMEMBERED_DAYS = 240
"""Windows of 92 days over three months, and eight weeks before them to learn weekdays from."""


@dataclass(frozen=True, slots=True)
class Past:
    """Every stored day up to `last`, the last complete one, and what today brought until the instant of asking."""

    days: dict[date, list[Spent]]
    last: date
    today: list[Spent]

    def of_scope(self, scope: Scope) -> dict[date, Fraction]:
        """Spending per day since the scope first spent; days without any are zero."""
        sums = {
            day: sum((item.amount for item in items if scope.covers(item)), Fraction(0)) for day, items in self.days.items()
        }
        return filled(sums, self.last)

    def today_of(self, scope: Scope) -> Fraction:
        """Spending of today so far."""
        return sum((item.amount for item in self.today if scope.covers(item)), Fraction(0))

    def by_sku(self) -> dict[tuple[str, str, str], dict[date, Fraction]]:
        """Spending per day of each (team, kind, SKU), filled with zeros since its first day."""
        sums: dict[tuple[str, str, str], dict[date, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for day, items in self.days.items():
            for item in items:
                sums[item.team, item.kind, item.sku][day] += item.amount
        return {key: filled(days, self.last) for key, days in sums.items()}


def filled(sums: dict[date, Fraction], last: date) -> dict[date, Fraction]:
    """The days from the first with spending to `last`, none left out."""
    first = min((day for day, amount in sums.items() if amount), default=None)
    if first is None:
        return {}
    return {day: sums.get(day, Fraction(0)) for day in days_between(first, last)}


def days_between(first: date, last: date) -> Iterable[date]:
    """Both ends included."""
    return (first + number * DAY for number in range((last - first).days + 1))


def past_until(now: datetime, zone: str) -> Past:
    """The stored days and today, at list price."""
    where = ZoneInfo(zone)
    today = now.astimezone(where).date()
    days: dict[date, list[Spent]] = defaultdict(list)
    rows = SpendDay.objects.filter(day__gte=today - REMEMBERED_DAYS * DAY, day__lt=today).values_list(
        "day", "team", "kind", "cluster", "namespace", "consumer", "accelerator", "sku", "amount"
    )
    for day, *what, amount in rows.iterator():
        days[day].append(Spent(*what, Fraction(amount)))
    midnight = datetime(today.year, today.month, today.day, tzinfo=where)
    part = [Interval(midnight, now)] if midnight < now else []
    return Past(dict(days), today - DAY, spent_in(part))


def last_stored_day() -> date | None:
    """The last day with stored spending."""
    found: date | None = SpendDay.objects.aggregate(last=Max("day"))["last"]
    return found
