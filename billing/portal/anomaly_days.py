"""Unusual days for their page: thirty days of the same team and SKU, the usual range, and the largest contributors."""

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
"""Dimension of the explorer, and a name in it."""


@dataclass(frozen=True, slots=True)
class Contributor:
    """Namespace or consumer with its spending of the day; `link`: its jobs or models of that day in the explorer."""

    name: str
    amount: Decimal
    link: str


@dataclass(frozen=True)
class UnusualDay:
    """Finding with the days up to it. `spent`: spending by day and place."""

    finding: CostAnomaly
    spent: Mapping[date, Mapping[Place, Decimal]]
    currency: str

    @property
    def days(self) -> list[tuple[date, Decimal]]:
        """Return the thirty days that end with the finding; the last one has the amount as it was found."""
        last = self.finding.day
        days = [last - number * timedelta(days=1) for number in range(DAYS - 1, 0, -1)]
        return [*((day, sum(self.spent.get(day, {}).values(), ZERO)) for day in days), (last, self.finding.amount)]

    @property
    def band(self) -> tuple[Decimal, Decimal]:
        """Return the range that holds half of the compared days: the median, less and plus its median deviation."""
        return max(ZERO, self.finding.median - self.finding.mad), self.finding.median + self.finding.mad

    @property
    def chart(self) -> Chart:
        """Return the chart of spending by day over the usual range."""
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
        """Return the places that spent most on the day; none if no spending of the day is stored by place."""
        found = sorted(self.spent.get(self.finding.day, {}).items(), key=lambda item: (-item[1], item[0]))
        return [Contributor(place[1], amount, self.link(place)) for place, amount in found[:NAMED] if amount]

    @property
    def day_link(self) -> str:
        return self.link(("", ""))

    def link(self, place: Place) -> str:
        """Return the explorer address of the day and a place, by job or model; without a place, tokens by consumer."""
        day, tokens = self.finding.day.isoformat(), self.finding.kind == "tokens"
        asked = [("from", day), ("to", day), ("by", "consumer" if tokens and not place[0] else "model" if tokens else "job"),
                 ("team", self.finding.team.code)]  # fmt: skip
        return f"{reverse('portal:explorer')}?{urlencode([*asked, *([place] if place[0] else [])])}"


def unusual_days(findings: Sequence[CostAnomaly], currency: str) -> list[UnusualDay]:
    """Return the findings of a page with the spending around them, read in one query."""
    spent = _spent(findings)
    return [UnusualDay(item, spent.get((item.team.code, item.kind, item.sku), {}), currency) for item in findings]


def _spent(findings: Iterable[CostAnomaly]) -> dict[tuple[str, str, str], dict[date, dict[Place, Decimal]]]:
    # matches no row: an empty Q would match all of them
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
