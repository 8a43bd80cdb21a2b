"""PURE: differences of two price lists, price by price: added, removed, raised and lowered."""

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pricing.contexts import in_order
from pricing.money import round_to
from pricing.rate_card import MILLION_TOKENS, PriceVersion

PERCENT_PLACES: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class PriceKey:
    """Key of a price in a list; `token_class` with its bucket of prompt lengths.

    `accelerator` is set for a resource with a price on one accelerator only.
    """

    kind: str
    sku: str
    accelerator: str
    token_class: str
    unit: str


@dataclass(frozen=True, slots=True)
class PriceChange:
    """Price in two lists; None if a list has none."""

    key: PriceKey
    old: Decimal | None
    new: Decimal | None

    @property
    def change(self) -> str:
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        return "same" if self.old == self.new else "raised" if self.new > self.old else "lowered"

    @property
    def percent(self) -> Decimal | None:
        """Return new over old less 1, in percent with 2 decimals; None if there is no old price or it is 0."""
        if not self.old or self.new is None:
            return None
        return round_to((Fraction(self.new) / Fraction(self.old) - 1) * 100, PERCENT_PLACES)

    def as_dict(self) -> dict[str, str | None]:
        """Return the change as JSON: prices are decimal strings with 4 decimals, null if a list has none."""
        return {
            "kind": self.key.kind, "sku": self.key.sku, "accelerator": self.key.accelerator or None,
            "token_class": self.key.token_class or None, "unit": self.key.unit,
            "old": None if self.old is None else format(self.old, "f"),
            "new": None if self.new is None else format(self.new, "f"),
            "change": self.change, "percent": None if self.percent is None else format(self.percent, "f"),
        }  # fmt: skip


def price_changes(old: PriceVersion, new: PriceVersion) -> list[PriceChange]:
    """Return every price of either list, by kind and name.

    >>> from datetime import UTC, datetime
    >>> from pricing.rate_card import GpuPrice
    >>> at = datetime(2026, 10, 1, tzinfo=UTC)
    >>> first, second = (PriceVersion("v", at, None, (GpuPrice(Decimal(price), "H800"),)) for price in ("10", "12.5"))
    >>> [(row.key.sku, row.change, row.percent) for row in price_changes(first, second)]
    [('H800', 'raised', Decimal('25.00'))]
    """
    before, after = prices_of(old), prices_of(new)
    # buckets sort by prompt length, not as text; the key itself breaks ties
    keys = sorted(before.keys() | after.keys(), key=lambda key: (replace(key, token_class=in_order(key.token_class)), key))
    return [PriceChange(key, before.get(key), after.get(key)) for key in keys]


def prices_of(version: PriceVersion) -> dict[PriceKey, Decimal]:
    """Return every price of a list by its key."""
    gpu = {
        PriceKey("gpu", item.sku, item.accelerator if item.resource else "", "", str(item.unit)): item.price
        for item in version.gpu
    }
    tokens = {
        PriceKey("tokens", model, "", token_class, MILLION_TOKENS): price
        for (model, token_class), price in version.tokens.items()
    }
    return {**gpu, **tokens}
