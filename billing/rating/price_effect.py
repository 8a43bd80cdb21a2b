"""Effect of other prices on a month: its real usage, priced by the published lists and by another one.

Both sides are one computation (`rate_period`) over the same usage, owners and efficiency verdicts; only the rate card
differs. Amounts are those of the lines, rounded once each, so the sum of a team is the total of its invoice. Corrections
of earlier months are on neither side: they keep the price of their own time.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.rates.selectors import rate_card
from billing.rating.assessment import RatingResult, rate_period
from metering.intervals import Interval
from pricing.contexts import SEPARATOR, class_and_context
from pricing.money import round_to
from pricing.rate_card import PriceVersion, RateCard
from pricing.rating import Charge, Unpriced

ZERO = Decimal("0.00")
PERCENT_PLACES = 2


@dataclass(frozen=True, slots=True, order=True)
class EffectKey:
    """Dimensions of an effect; empty in a sum over all. Buckets of prompt lengths are summed: lists differ in them."""

    team: str = ""
    kind: str = ""
    sku: str = ""
    token_class: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Amounts before and after. An amount of zero means that nothing is charged there at all.

    `unpriced`: some of its usage has no price in the other list, so that it is in no amount after.
    """

    key: EffectKey
    before: Decimal
    after: Decimal
    unpriced: bool = False

    @property
    def difference(self) -> Decimal:
        return self.after - self.before

    @property
    def percent(self) -> Decimal | None:
        """Return the difference in percent of the amount before, 2 decimals; None if that is zero or a price is missing."""
        if not self.before or self.unpriced:
            return None
        return round_to(Fraction(self.difference) / Fraction(self.before) * 100, PERCENT_PLACES)


@dataclass(frozen=True)
class PriceEffect:
    """Effect per line of team and SKU, and the usage without a price in either list.

    `unpriced_after` would block the close: it is in no amount, so the amounts are too low where it is not empty.
    `unrated`: why teams cannot be rated by either list; no row contains them.
    """

    rows: list[Effect]
    unpriced_before: list[Unpriced]
    unpriced_after: list[Unpriced]
    unrated: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Effect:
        return self._summed(lambda _: EffectKey())[0] if self.rows else Effect(EffectKey(), ZERO, ZERO)

    @property
    def by_team(self) -> list[Effect]:
        """Return the effect per team, the largest change first."""
        teams = self._summed(lambda key: EffectKey(team=key.team))
        return sorted(teams, key=lambda effect: (-abs(effect.difference), effect.key))

    @property
    def by_sku(self) -> list[Effect]:
        """Return the effect per SKU and token class over all teams."""
        return self._summed(lambda key: replace(key, team=""))

    def of_team(self, code: str) -> list[Effect]:
        return [row for row in self.rows if row.key.team == code]

    def as_dict(self) -> dict[str, Any]:
        """Return the effect for JSON: amounts are decimal strings, `percent` is null where nothing was charged before."""
        return {
            "total": _document(self.total),
            "teams": [{"team": row.key.team, **_document(row)} for row in self.by_team],
            "skus": [{**_sku(row.key), **_document(row)} for row in self.by_sku],
            "rows": [{"team": row.key.team, **_sku(row.key), **_document(row)} for row in self.rows],
            "unpriced_before": [_left(item) for item in self.unpriced_before],
            "unpriced_after": [_left(item) for item in self.unpriced_after],
            "unrated": [{"team": team, "problem": problem} for team, problem in sorted(self.unrated.items())],
        }

    def _summed(self, by: Callable[[EffectKey], EffectKey]) -> list[Effect]:
        sums: dict[EffectKey, list[Decimal]] = defaultdict(lambda: [ZERO, ZERO])
        unpriced: set[EffectKey] = set()
        for row in self.rows:
            key = by(row.key)
            sums[key][0] += row.before
            sums[key][1] += row.after
            unpriced |= {key} if row.unpriced else set()
        return [Effect(key, sums[key][0], sums[key][1], key in unpriced) for key in sorted(sums)]


def _document(effect: Effect) -> dict[str, str | None]:
    # usage without a price must not look free
    unknown = effect.unpriced and not effect.after
    return {
        "before": format(effect.before, "f"),
        "after": None if unknown else format(effect.after, "f"),
        "difference": None if effect.unpriced else format(effect.difference, "f"),
        "percent": None if effect.percent is None else format(effect.percent, "f"),
    }


def _sku(key: EffectKey) -> dict[str, str | None]:
    return {"kind": key.kind, "sku": key.sku, "token_class": key.token_class or None}


def _left(item: Unpriced) -> dict[str, str]:
    return {"sku": item.sku, "quantity": format(item.quantity, "f"), "unit": item.unit}


def price_effect(*, window: Interval, zone: str, close_seq: int | None, prices: PriceVersion) -> PriceEffect:
    """Compute the effect of `prices`, as though in force throughout [start, end), on the usage of that time.

    `close_seq` as in `rate_period`: that of the close, or None for a month that is open.
    """
    card = rate_card()
    before = rate_period(window=window, zone=zone, close_seq=close_seq, card=card)
    after = rate_period(window=window, zone=zone, close_seq=close_seq, card=_instead_of(card, prices, window))
    return compare(before, after)


def _instead_of(card: RateCard, prices: PriceVersion, window: Interval) -> RateCard:
    """Return a card with `prices` in place of every version, cut at the same instants: equal costs round equally."""
    versions = []
    for piece in window.cut(card.changes()):
        replaced = card.version_at(piece.start)
        name = replaced.name if replaced else f"nothing from {piece.start.isoformat()}"
        versions.append(replace(prices, name=name, valid_from=piece.start, valid_until=piece.end))
    return RateCard(versions)


def compare(before: RatingResult, after: RatingResult) -> PriceEffect:
    """Compare two assessments of the same usage, line by line. A team that one of them cannot rate is left out of both."""
    sums, unrated = (_amounts(before.charges), _amounts(after.charges)), before.faults | after.faults
    missing = {item.sku for item in after.unpriced}
    rows = [
        Effect(key, sums[0].get(key, ZERO), sums[1].get(key, ZERO), key not in sums[1] and _named(key, missing))
        for key in sorted(sums[0].keys() | sums[1].keys())
        if key.team not in unrated
    ]
    return PriceEffect(rows, before.unpriced, after.unpriced, unrated)


def _named(key: EffectKey, missing: Collection[str]) -> bool:
    """Return True if unpriced usage is of this SKU: tokens are named by model, class and bucket of prompt lengths."""
    return any(sku == key.sku or sku.partition(SEPARATOR)[0] == f"{key.sku} {key.token_class}" for sku in missing)


def _amounts(charges: Iterable[Charge]) -> dict[EffectKey, Decimal]:
    """Sum the rounded amounts that teams pay, without the platform's own use, which is charged to nobody."""
    sums: dict[EffectKey, Decimal] = defaultdict(lambda: ZERO)
    for charge in charges:
        if not charge.key.platform:
            key = charge.key
            token_class, _ = class_and_context(key.token_class)
            sums[EffectKey(key.team, key.kind, key.sku, token_class)] += charge.amount
    return dict(sums)
