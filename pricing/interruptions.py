"""PURE: part of an allocation that the platform carries, because of the reason for its end."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pricing.meters import MICROSECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class InterruptionRule:
    """Rule for allocations that ended by `reason` in [valid_from, valid_until): the last `hours` are carried; None: all."""

    policy: str
    reason: str
    valid_from: datetime
    valid_until: datetime | None
    hours: Decimal | None

    @property
    def cap_us(self) -> int | None:
        """Return the cap in microseconds, counted back from the end; None without a cap."""
        return None if self.hours is None else int(self.hours * MICROSECONDS_PER_HOUR)
