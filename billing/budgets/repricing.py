"""How much dearer the days to come are: price versions that are published already, applied to what was used lately.

The usage of the last two weeks is rated twice, at the prices of now and at those of a version to come; the ratio for a
scope is what its days cost from that version on. What has no price in the later list keeps that of now: never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Final

from billing.budgets.scope import Scope
from billing.budgets.spending import Spent, by_team, covered, local_days, spent_in
from billing.rates.selectors import rate_card
from metering.intervals import MICROSECOND, Interval, day_of
from pricing.rate_card import PriceVersion, RateCard

LOOKED_AT: Final = timedelta(days=14)
ByTeam = Mapping[str, list[Spent]]


@dataclass(frozen=True)
class PricesAhead:
    """What the usage of the last weeks costs now, and from each instant at which a published version begins."""

    now: datetime
    zone: str
    at_now: ByTeam
    later: tuple[tuple[datetime, ByTeam], ...] = ()

    def dearer(self, scope: Scope, until: datetime) -> dict[date, Fraction]:
        """Cost of each local day to come as a multiple of what it would be at the prices of now; only where it differs."""
        base = {_what(item): item.amount for item in covered(dict(self.at_now), scope)}
        total = sum(base.values(), Fraction(0))
        changes = [(at, _ratio(base, covered(dict(spent), scope), total)) for at, spent in self.later if at < until]
        if not total or not changes:
            return {}
        days = {day_of(day.start, self.zone): _of_day(day, changes) for day in local_days(self.now, until, self.zone)}
        return {day: factor for day, factor in days.items() if factor != 1}


def prices_ahead(now: datetime, until: datetime, zone: str) -> PricesAhead:
    """The published versions that begin between now and then; nothing is read where there is none."""
    card = rate_card()
    current = card.version_at(now)
    later = [version for version in card.versions if now < version.valid_from < until]
    if current is None or not later:
        return PricesAhead(now, zone, {})
    window = [Interval(now - LOOKED_AT, now)]
    later_spent = tuple((version.valid_from, by_team(spent_in(window, card=_always(version)))) for version in later)
    return PricesAhead(now, zone, by_team(spent_in(window, card=_always(current))), later_spent)


def _always(version: PriceVersion) -> RateCard:
    return RateCard([replace(version, valid_from=datetime.min.replace(tzinfo=version.valid_from.tzinfo), valid_until=None)])


def _what(item: Spent) -> tuple[str, ...]:
    return (item.team, item.kind, item.cluster, item.namespace, item.consumer, item.accelerator, item.sku)


def _ratio(base: Mapping[tuple[str, ...], Fraction], later: list[Spent], total: Fraction) -> Fraction:
    priced = {_what(item): item.amount for item in later}
    return sum((priced.get(what, amount) for what, amount in base.items()), Fraction(0)) / total if total else Fraction(1)


def _of_day(day: Interval, changes: list[tuple[datetime, Fraction]]) -> Fraction:
    """The mean over the day, by time: a version may begin at any instant."""
    factors = [(day.start, Fraction(1)), *((max(at, day.start), ratio) for at, ratio in changes if at < day.end)]
    ends = [*(at for at, _ in factors[1:]), day.end]
    parts = [(end - at, ratio) for (at, ratio), end in zip(factors, ends, strict=True)]
    return sum((Fraction(part // MICROSECOND) * ratio for part, ratio in parts), Fraction(0)) / day.microseconds
