"""Reads of the stored past: spending per local day of a scope, of a team's SKU, and of its peers."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction

from django.db.models import Q, QuerySet, Sum

from billing.budgets.forecast import DAY
from billing.budgets.models import DailySpend, DailyTeamSpend
from billing.budgets.scope import Scope
from billing.budgets.spending import Spent, spent_in
from metering.intervals import Interval, day_of, midnight_of

REMEMBERED_DAYS = 240
"""Days read from the stored past: back-test windows of 92 days over three months, and eight weeks to learn weekdays."""
COMPARED_DAYS = 56
"""Days compared: fourteen weekend days are seven weeks; one more week replaces days that are left out."""


@dataclass(frozen=True, slots=True)
class Past:
    """Stored days up to `last`, the last complete one, and the spending of today so far."""

    last: date
    today: list[Spent]

    def of_scope(self, scope: Scope) -> dict[date, Fraction]:
        """Return the spending per day since the scope first spent; days without any are zero."""
        remembered = Q(day__gte=self.last - REMEMBERED_DAYS * DAY, day__lte=self.last, team__in=scope.teams)
        if scope.is_everything:
            summed = DailyTeamSpend.objects.filter(remembered).values_list("day").annotate(Sum("amount"))
            return filled({day: Fraction(amount) for day, amount in summed}, self.last)
        return self._covered(DailySpend.objects.filter(remembered), scope)

    def _covered(self, rows: QuerySet[DailySpend], scope: Scope) -> dict[date, Fraction]:
        sums: dict[date, Fraction] = defaultdict(Fraction)
        for row in rows.iterator():
            if scope.covers(row):
                sums[row.day] += Fraction(row.amount)
        return filled(sums, self.last)

    def today_of(self, scope: Scope) -> Fraction:
        """Return the spending of today so far."""
        return sum((item.amount for item in self.today if scope.covers(item)), Fraction(0))

    def of_devices(self, scope: Scope, team: str, accelerator: str) -> dict[date, Fraction]:
        """Return a team's spending on whole devices of an accelerator, as far as the scope covers it; with today so far."""
        remembered = Q(day__gte=self.last - REMEMBERED_DAYS * DAY, day__lte=self.last)
        rows = DailySpend.objects.filter(remembered, team=team, kind="gpu", sku=accelerator)
        days, today = self._covered(rows, scope), self.last + DAY
        for item in self.today:
            if (item.team, item.kind, item.sku) == (team, "gpu", accelerator) and scope.covers(item):
                days[today] = days.get(today, Fraction(0)) + item.amount
        return days

    def by_sku(self) -> dict[tuple[str, str, str], dict[date, Fraction]]:
        """Return the recent spending per day of each (team, kind, SKU), filled with zeros since its first day there."""
        sums: dict[tuple[str, str, str], dict[date, Fraction]] = defaultdict(dict)
        rows = DailySpend.objects.filter(day__gt=self.last - COMPARED_DAYS * DAY, day__lte=self.last)
        for team, kind, sku, day, amount in rows.values_list("team", "kind", "sku", "day").annotate(Sum("amount")):
            sums[team, kind, sku][day] = Fraction(amount)
        return {key: filled(days, self.last) for key, days in sums.items()}


def filled(sums: dict[date, Fraction], last: date) -> dict[date, Fraction]:
    """Return every day from the first with spending to `last`."""
    first = min((day for day, amount in sums.items() if amount), default=None)
    if first is None:
        return {}
    days = (first + number * DAY for number in range((last - first).days + 1))
    return {day: sums.get(day, Fraction(0)) for day in days}


def past_until(now: datetime, zone: str) -> Past:
    """Read the past as of now, at list price."""
    today = day_of(now, zone)
    midnight = midnight_of(today, zone)
    return Past(today - DAY, spent_in([Interval(midnight, now)] if midnight < now else []))
