"""Published price changes ahead: cost of the days to come relative to now, from recent usage at the later prices.

The usage of the last two weeks is rated twice, at current prices and at those of a version to come; the ratio for a
scope is the relative cost of its days from that version on. A SKU without a price in the later list keeps its current
one: never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.budgets.scope import Scope
from billing.budgets.spending import Spent, by_team, covered, local_days, spent_in
from billing.rates.selectors import rate_card
from billing.rating.retroactive import CorrectedRateCard
from metering.intervals import MICROSECOND, Interval, day_of
from pricing.rate_card import GpuPrice, PriceVersion, RateCard, UnpricedError

LOOKED_AT: Final = timedelta(days=14)
ByTeam = Mapping[str, list[Spent]]


@dataclass(frozen=True)
class _Later:
    """A published version to come: its start, its prices, and the cost of recent usage at them."""

    begin: datetime
    card: RateCard
    spent: ByTeam


@dataclass(frozen=True)
class PricesAhead:
    """Current prices and the cost of recent usage at them, and the same of published versions to come."""

    now: datetime
    zone: str
    card: RateCard
    spent: ByTeam = field(default_factory=dict)
    later: tuple[_Later, ...] = ()

    def dearer(self, scope: Scope, until: datetime) -> dict[date, Fraction]:
        """Return the cost of each local day to come as a multiple of its cost at current prices; only where it differs."""
        total = _sum(self.spent, scope)
        return self._by_day([(one, _sum(one.spent, scope) / total) for one in self.later] if total else [], until)

    def dearer_devices(self, accelerator: str, until: datetime) -> dict[date, Fraction]:
        """Return the price of whole devices of an accelerator on each day as a multiple of now; only where it differs."""
        price = self.card.list_price(accelerator, self.now)
        if not price:
            return {}
        listed = [(one, one.card.list_price(accelerator, one.begin) or 0) for one in self.later]
        return self._by_day([(one, Fraction(later) / Fraction(price)) for one, later in listed], until)

    def _by_day(self, ratios: list[tuple[_Later, Fraction]], until: datetime) -> dict[date, Fraction]:
        changes = [(one.begin, ratio) for one, ratio in ratios if one.begin < until]
        if not changes:
            return {}
        days = {day_of(day.start, self.zone): _of_day(day, changes) for day in local_days(self.now, until, self.zone)}
        return {day: factor for day, factor in days.items() if factor != 1}


def prices_ahead(now: datetime, until: datetime, zone: str) -> PricesAhead:
    """Read the published versions that begin between `now` and `until`; without any, no usage is read."""
    published = rate_card()
    current = published.version_at(now)
    later = [version for version in published.versions if now < version.valid_from < until]
    if current is None or not later:
        return PricesAhead(now, zone, published)
    card, window = _Always(current), [Interval(now - LOOKED_AT, now)]
    cards = [(version.valid_from, _Always(version, card)) for version in later]
    return PricesAhead(
        now, zone, card, by_team(spent_in(window, card=card)),
        tuple(_Later(begin, one, by_team(spent_in(window, card=one))) for begin, one in cards),
    )  # fmt: skip


class _Always(CorrectedRateCard):
    """Rate card with the prices of one version at any time, and those of another card for whatever it lacks."""

    def __init__(self, version: PriceVersion, instead: RateCard | None = None) -> None:
        begin = datetime.min.replace(tzinfo=version.valid_from.tzinfo)
        super().__init__([replace(version, valid_from=begin, valid_until=None)], ())
        self._instead = instead or RateCard(())

    def context_bounds(self, instant: datetime) -> dict[str, tuple[int, ...]]:
        priced = {model for model, _ in self.versions[0].tokens}
        # a model is priced by one card only, with the buckets of that card
        others = {model: ends for model, ends in self._instead.context_bounds(instant).items() if model not in priced}
        return super().context_bounds(instant) | others

    def _find_gpu(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        try:
            return super()._find_gpu(accelerator, resource, instant)
        except UnpricedError:
            return self._instead.gpu_price(accelerator, resource, instant)

    def _find_tokens(self, model: str, token_class: str, instant: datetime) -> tuple[PriceVersion, Decimal]:
        try:
            return super()._find_tokens(model, token_class, instant)
        except UnpricedError:
            return self._instead.token_price(model, token_class, instant)


def _sum(spent: ByTeam, scope: Scope) -> Fraction:
    return sum((item.amount for item in covered(spent, scope)), Fraction(0))


def _of_day(day: Interval, changes: list[tuple[datetime, Fraction]]) -> Fraction:
    """Return the mean ratio over the day, by time: a version may begin at any instant."""
    factors = [(day.start, Fraction(1)), *((max(at, day.start), ratio) for at, ratio in changes if at < day.end)]
    ends = [*(at for at, _ in factors[1:]), day.end]
    parts = [(end - at, ratio) for (at, ratio), end in zip(factors, ends, strict=True)]
    return sum((Fraction(part // MICROSECOND) * ratio for part, ratio in parts), Fraction(0)) / day.microseconds
