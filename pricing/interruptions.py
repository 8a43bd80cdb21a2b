"""PURE: which part of an allocation the platform carries, because of how the allocation ended."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pricing.meters import MICROSECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class InterruptionRule:
    """Of allocations that ended by `reason` in [valid_from, valid_until) the last `hours` are carried; None: all of them."""

    policy: str
    reason: str
    valid_from: datetime
    valid_until: datetime | None
    hours: Decimal | None

    @property
    def cap_us(self) -> int | None:
        """The last microseconds that are carried; None where all are."""
        return None if self.hours is None else int(self.hours * MICROSECONDS_PER_HOUR)
