"""PURE: results of a query, as exact decimals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.explorer import cube
from billing.explorer.sums import METRIC
from pricing.money import EXACT, round_to

UNIT_COSTS: Final[Mapping[str, tuple[str, str, int]]] = {
    "per_gpu_hour": ("gpu_cost", "gpu_hours", 1), "per_1000_requests": ("request_cost", "requests", 1000),
    "per_1m_tokens": ("token_cost", "tokens", 1_000_000), "per_job": ("gpu_cost", "jobs", 1),
}  # fmt: skip
"""Unit costs: cost, usage, and the quantity of usage that the unit cost is for."""
UNIT_PLACES: Final = 4


def places_of(name: str) -> int:
    """Return the decimals of a sum; tokens are whole: their six decimals are those of millions."""
    return 0 if name in ("jobs", "tokens") else cube.places_of(METRIC[name].measure)


def exact(units: int, name: str) -> Decimal:
    return EXACT.scaleb(Decimal(units), -places_of(name))


@dataclass
class Group:
    """Sums of one group, or of all. `before`: of the elapsed part of the previous span; None where unknown.

    `comparable`: part of `total` in the compared days. `line`: team and digest of its largest line, in one month.
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
        """Return True if any of the shown sums is not 0."""
        return bool(self.total) or any(self.sums.values())

    @property
    def change(self) -> Decimal | None:
        """Return the increase over the previous span; None without comparison."""
        return None if self.before is None or self.comparable is None else self.comparable - self.before

    @property
    def change_ratio(self) -> Decimal | None:
        """Return the change as a ratio of the previous sum; None where that is 0 or unknown."""
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
