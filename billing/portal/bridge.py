"""Variance bridge between two months: effects of prices, usage, efficiency, late usage and other kinds of lines.

Lines of both months are compared by priced item (kind, accelerator, SKU, token class, unit), each team by itself. For an
item of both months, the price effect is the later quantity times the change of its mean price; the rest of its change
is usage. An item of one month only is use begun or ended. The effects add up to the change of the total, to the cent.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from heapq import nlargest
from typing import Any, Final, NamedTuple

from billing.invoices.line_rollups import Charged
from pricing.meters import LINE_KINDS, Role
from pricing.money import EXACT, amount_places, round_part

ZERO = Decimal("0.00")
PRICED = ("gpu", "tokens")
OTHERS: Final = tuple(name for name, kind in LINE_KINDS.items() if name not in PRICED and kind.role is not Role.CREDIT)
ORDER: Final = ("price", "usage", "begun", "ended", *OTHERS, "late", "credit")
"""Effects in the order of pages; every kind of line that has no price to compare is an effect of its own."""
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """Step of the bridge; `name` is one of ORDER."""

    name: str
    amount: Decimal


class ItemChange(NamedTuple):
    """Change of one SKU of one team: its amounts, and its price and usage effects."""

    team: str
    kind: str
    sku: str
    token_class: str
    before: Decimal
    after: Decimal
    price: Decimal
    usage: Decimal

    @property
    def change(self) -> Decimal:
        return self.after - self.before


def _by_size(item: ItemChange) -> tuple[Any, ...]:
    return -abs(item.change), *item[:4]


@dataclass(frozen=True, slots=True)
class Bridge:
    """Effects between two totals; `compared`: changes of each SKU of each team, in no order."""

    before: Decimal
    after: Decimal
    effects: list[Effect]
    compared: list[ItemChange]

    @property
    def steps(self) -> list[Effect]:
        """Return the effects between the earlier and the later total."""
        return [Effect("before", self.before), *self.effects, Effect("after", self.after)]

    @property
    def items(self) -> list[ItemChange]:
        """Return the compared changes, the largest first."""
        return sorted(self.compared, key=_by_size)

    def largest(self, most: int) -> list[ItemChange]:
        """Return the `most` largest changes without sorting all of them."""
        changes = nlargest(most, (abs(item.after - item.before) for item in self.compared))
        if not changes:
            return []
        found = [item for item in self.compared if item.change and abs(item.change) >= changes[-1]]
        return sorted(found, key=_by_size)[:most]

    @property
    def change(self) -> Decimal:
        return self.after - self.before

    @property
    def ratio(self) -> Decimal | None:
        """Return the change as a share of the earlier total; None if that is zero."""
        return self.change / self.before if self.before else None


def bridge_of(before: Iterable[Charged], after: Iterable[Charged]) -> Bridge:
    """Build the bridge between the lines of two months or of parts of them."""
    old, new = _Side(before), _Side(after)
    items = [_item(key, found, new.priced.get(key, _NONE)) for key, found in old.priced.items()]
    items += [_item(key, _NONE, found) for key, found in new.priced.items() if key not in old.priced]
    sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
    sums["price"] = sum((item.price for item in items if item.price), ZERO)
    for item in items:
        sums["begun" if not item.before else "ended" if not item.after else "usage"] += item.usage
    for name in {**old.others, **new.others}:
        sums[name] += new.others.get(name, ZERO) - old.others.get(name, ZERO)
    effects = [Effect(name, sums[name]) for name in ORDER if sums[name]]
    return Bridge(old.total, new.total, effects, items)


class _Sum:
    """Sum of lines. A month of a thousand teams is compared in 18,000 sums while a user waits."""

    __slots__ = ("amount", "quantity")

    def __init__(self) -> None:
        self.quantity, self.amount = Decimal(0), ZERO


_NONE: Final = _Sum()


class _Side:
    """Lines of one month: sums by priced item, and the rest by the name of its effect."""

    def __init__(self, lines: Iterable[Charged]) -> None:
        self.priced: dict[Key, _Sum] = {}
        self.others: dict[str, Decimal] = defaultdict(lambda: ZERO)
        for line in lines:
            key = line.key
            if key.kind not in PRICED or key.correction:
                self.others["late" if key.correction else key.kind] += line.amount
                continue
            name = (key.team, key.kind, key.accelerator, key.sku, key.token_class, key.unit)
            found = self.priced.get(name)
            if found is None:
                found = self.priced[name] = _Sum()
            found.quantity += line.quantity
            found.amount += line.amount
        self.total = sum((item.amount for item in self.priced.values()), ZERO) + sum(self.others.values(), ZERO)


def _item(key: Key, old: _Sum, new: _Sum) -> ItemChange:
    team, kind, _, sku, token_class, _ = key
    before, after = old.amount, new.amount
    price = _price_effect(old, new) if old.quantity and new.quantity else ZERO
    return ItemChange(team, kind, sku, token_class, before, after, price, after - before - price)


def _price_effect(old: _Sum, new: _Sum) -> Decimal:
    """Return the later quantity times the change of its mean price: amount - quantity x old amount / old quantity."""
    over = EXACT.subtract(EXACT.multiply(new.amount, old.quantity), EXACT.multiply(new.quantity, old.amount))
    return round_part(over, old.quantity, amount_places())
