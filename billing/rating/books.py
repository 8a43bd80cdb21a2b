"""What rating looks things up in: owners, prices and policies, read once for one assessment."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.rates.selectors import CarbonBook, PolicyBook
from billing.rating.corrected import CorrectedRateCard
from billing.tenancy.ownership import OwnershipBook
from metering.intervals import Interval
from pricing.money import EXACT


@dataclass(frozen=True)
class Books:
    """Owners of namespaces and consumers, the price list, the efficiency policies, and what was measured late."""

    namespaces: OwnershipBook
    consumers: OwnershipBook
    card: CorrectedRateCard
    policies: PolicyBook
    carbon: CarbonBook
    late_samples: Sequence[tuple[Interval, int]] = ()

    def last_sample(self, window: Interval) -> int:
        """The last efficiency sample that counts for a window although it came after its close; 0 for none."""
        return max((last for when, last in self.late_samples if when.overlap(window)), default=0)


def gpu_seconds(device_us: Decimal) -> Decimal:
    """Device-microseconds as device-seconds, exact."""
    return EXACT.scaleb(device_us, -6)
