"""Why a month costs more or less than the one before: what prices did, what use did, what efficiency and late usage did.

Lines of both months are compared by what they price (kind, accelerator, SKU, class of token, unit), each team by itself. Of
what both months have, the price effect is the later quantity times the change of its mean price; the rest of its change
is use. What only one month has is use, begun or ended. The effects add up to the change of the total, to the cent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.invoicing.facets import Charged
from pricing.money import round_amount

ZERO = Decimal("0.00")
PRICED = ("gpu", "tokens")
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """One step of the bridge; `name` is price, usage, begun, ended, efficiency, interruption, late or other."""

    name: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class ItemChange:
    """What one SKU of one team did to the total."""

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


@dataclass(frozen=True, slots=True)
class Bridge:
    """From one total to the other by its effects; `items` the SKUs that changed most, the largest change first."""

    before: Decimal
    after: Decimal
    effects: list[Effect]
    items: list[ItemChange]

    @property
    def change(self) -> Decimal:
        return self.after - self.before

    @property
    def ratio(self) -> Decimal | None:
        """The change as a share of the earlier total; None where there was none."""
        return self.change / self.before if self.before else None


def bridge_of(before: Iterable[Charged], after: Iterable[Charged]) -> Bridge:
    """The bridge between the lines of two months or stretches of them."""
    old, new = list(before), list(after)
    items = _items(_priced(old), _priced(new))
    sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for item in items:
        name = "begun" if not item.before else "ended" if not item.after else "usage"
        sums[name] += item.usage
        sums["price"] += item.price
    for sign, lines in ((-1, old), (1, new)):
        for line in lines:
            if line.key.correction or line.key.kind not in PRICED:
                sums[_other(line)] += sign * line.amount
    order = ("price", "usage", "begun", "ended", "efficiency", "interruption", "late", "other")
    effects = [Effect(name, sums[name]) for name in order if sums[name]]
    largest = sorted(items, key=lambda item: (-abs(item.change), item.team, item.sku, item.token_class))
    return Bridge(_total(old), _total(new), effects, largest)


def _other(line: Charged) -> str:
    if line.key.correction:
        return "late"
    return line.key.kind if line.key.kind in ("efficiency", "interruption") else "other"


def _total(lines: Iterable[Charged]) -> Decimal:
    return sum((line.amount for line in lines), ZERO)


@dataclass
class _Sum:
    quantity: Decimal = Decimal(0)
    amount: Decimal = ZERO


def _priced(lines: Iterable[Charged]) -> dict[Key, _Sum]:
    sums: dict[Key, _Sum] = defaultdict(_Sum)
    for line in lines:
        key = line.key
        if key.kind in PRICED and not key.correction:
            found = sums[key.team, key.kind, key.accelerator, key.sku, key.token_class, key.unit]
            found.quantity += line.quantity
            found.amount += line.amount
    return sums


def _items(old: Mapping[Key, _Sum], new: Mapping[Key, _Sum]) -> list[ItemChange]:
    return [_item(key, old.get(key, _Sum()), new.get(key, _Sum())) for key in sorted({*old, *new})]


def _item(key: Key, old: _Sum, new: _Sum) -> ItemChange:
    team, kind, _, sku, token_class, _ = key
    price = ZERO
    if old.quantity and new.quantity:
        at_old_price = Fraction(new.quantity) * Fraction(old.amount) / Fraction(old.quantity)
        price = round_amount(Fraction(new.amount) - at_old_price)
    return ItemChange(team, kind, sku, token_class, old.amount, new.amount, price, new.amount - old.amount - price)
