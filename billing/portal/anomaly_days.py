"""An unusual day as its page shows it: thirty days of the same team and SKU, what is usual, and who made the day."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext

from billing.budgets.models import CostAnomaly, DailySpend
from billing.portal.charts import Chart, Series
from billing.portal.templatetags.portal import money

DAYS: Final = 30
NAMED: Final = 3
ZERO: Final = Decimal(0)
Place = tuple[str, str]
"""A dimension of the explorer, and a name in it."""


@dataclass(frozen=True, slots=True)
class Contributor:
    """A namespace or consumer with what it spent on the day; `link`: its jobs or models of that day in the explorer."""

    name: str
    amount: Decimal
    link: str


@dataclass(frozen=True)
class UnusualDay:
    """A finding with the days up to it. `spent`: by day and place."""

    finding: CostAnomaly
    spent: Mapping[date, Mapping[Place, Decimal]]
    currency: str

    @property
    def days(self) -> list[tuple[date, Decimal]]:
        """The thirty days that end with the finding; the day itself as it was found."""
        last = self.finding.day
        days = [last - number * timedelta(days=1) for number in range(DAYS - 1, 0, -1)]
        return [*((day, sum(self.spent.get(day, {}).values(), ZERO)) for day in days), (last, self.finding.amount)]

    @property
    def band(self) -> tuple[Decimal, Decimal]:
        """Between these lies one half of the days that it was compared with: the median, and its median deviation."""
        return max(ZERO, self.finding.median - self.finding.mad), self.finding.median + self.finding.mad

    @property
    def chart(self) -> Chart:
        """Spending by day over what is usual."""
        days, (low, high) = self.days, self.band
        amounts = [amount for _, amount in days]
        series = [
            Series(gettext("Spent"), "line", "gpu", amounts, [money(amount) for amount in amounts]),
            Series(gettext("Usual, from"), "edge", "tokens", [low] * DAYS, [money(low)] * DAYS),
            Series(gettext("Usual, to"), "band", "tokens", [high] * DAYS, [money(high)] * DAYS),
        ]
        return Chart([f"{day:%m-%d}" for day, _ in days], series, self.currency, legend=False, across=gettext("Day"))

    @property
    def contributors(self) -> list[Contributor]:
        """Who spent most on the day, where the day is complete."""
        found = sorted(self.spent.get(self.finding.day, {}).items(), key=lambda item: (-item[1], item[0]))
        return [Contributor(place[1], amount, self.link(place)) for place, amount in found[:NAMED] if amount]

    @property
    def day_link(self) -> str:
        return self.link(("", ""))

    def link(self, place: Place) -> str:
        """The day in the explorer, of one place: its jobs, or its models."""
        day, tokens = self.finding.day.isoformat(), self.finding.kind == "tokens"
        asked = [("from", day), ("to", day), ("by", "consumer" if tokens and not place[0] else "model" if tokens else "job"),
                 ("team", self.finding.team.code)]  # fmt: skip
        return f"{reverse('portal:explorer')}?{urlencode([*asked, *([place] if place[0] else [])])}"


def unusual_days(findings: Sequence[CostAnomaly], currency: str) -> list[UnusualDay]:
    """The findings of a page with the spending around them, read at once."""
    spent = _spent(findings)
    return [UnusualDay(item, spent.get((item.team.code, item.kind, item.sku), {}), currency) for item in findings]


def _spent(findings: Iterable[CostAnomaly]) -> dict[tuple[str, str, str], dict[date, dict[Place, Decimal]]]:
    wanted = Q(pk__in=[])
    for item in findings:
        first = item.day - (DAYS - 1) * timedelta(days=1)
        wanted |= Q(team=item.team.code, kind=item.kind, sku=item.sku, day__gte=first, day__lte=item.day)
    found: dict[tuple[str, str, str], dict[date, dict[Place, Decimal]]] = {}
    rows = DailySpend.objects.filter(wanted).values_list("team", "kind", "sku", "day", "namespace", "consumer", "amount")
    for team, kind, sku, day, namespace, consumer, amount in rows:
        place = ("namespace", namespace) if namespace else ("consumer", consumer)
        places = found.setdefault((team, kind, sku), {}).setdefault(day, {})
        places[place] = places.get(place, ZERO) + amount
    return found
