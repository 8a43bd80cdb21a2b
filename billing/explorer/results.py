"""PURE: what a query comes to, as exact decimals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.explorer.cube import PLACES
from billing.explorer.sums import METRIC
from pricing.money import EXACT, round_to

UNIT_COSTS: Final[Mapping[str, tuple[str, str, int]]] = {
    "per_gpu_hour": ("gpu_cost", "gpu_hours", 1), "per_1000_requests": ("request_cost", "requests", 1000),
    "per_1m_tokens": ("token_cost", "tokens", 1_000_000), "per_job": ("gpu_cost", "jobs", 1),
}  # fmt: skip
"""Cost over usage, per so many of it."""
UNIT_PLACES: Final = 4


def places_of(name: str) -> int:
    """Decimals of a sum; tokens are whole: their six decimals are those of millions."""
    return 0 if name in ("jobs", "tokens") else PLACES[METRIC[name].measure]


def exact(units: int, name: str) -> Decimal:
    return EXACT.scaleb(Decimal(units), -places_of(name))


@dataclass
class Group:
    """The sums of one group, or of all. `before`: of the span before, as far as this one has passed; None where unknown.

    `comparable`: what of `total` lies in days that are compared. `line`: team and digest of its largest line, in one month.
    """

    names: tuple[str, ...]
    metric: str
    total: Decimal
    bars: list[Decimal] = field(default_factory=list)
    comparable: Decimal | None = None
    before: Decimal | None = None
    sums: dict[str, Decimal] = field(default_factory=dict)
    line: tuple[str, str] | None = None

    @property
    def counts(self) -> bool:
        """Whether it has any of the sums that are shown."""
        return bool(self.total) or any(self.sums.values())

    @property
    def change(self) -> Decimal | None:
        """How much more than before; None where nothing is compared."""
        return None if self.before is None or self.comparable is None else self.comparable - self.before

    @property
    def change_ratio(self) -> Decimal | None:
        """The change as a part of what was before; None where that is nothing."""
        if self.change is None or not self.before:
            return None
        return round_to(Fraction(self.change) / Fraction(abs(self.before)), 6)

    def cell(self, column: str) -> Decimal | None:
        if column in UNIT_COSTS:
            cost, usage, per = UNIT_COSTS[column]
            used = self.sums.get(usage)
            return round_to(Fraction(self.sums[cost]) * per / Fraction(used), UNIT_PLACES) if used else None
        if column in ("before", "change", "total"):
            found: Decimal | None = getattr(self, column)
            return found
        return self.sums.get(column)
