"""What rating looks things up in: owners, prices and policies, read once for one assessment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from billing.rates.selectors import CarbonBook, PolicyBook
from billing.rating.interruptions import carried_rules
from billing.rating.retroactive import CorrectedRateCard
from billing.tenancy.ownership import OwnershipBook
from billing.usage.interruptions import CarriedRule
from metering.intervals import Interval
from pricing.commitments import CommitmentBook
from pricing.money import EXACT


@dataclass(frozen=True)
class ReferenceData:
    """Owners of namespaces and consumers, the price list, policies, what was measured late, and commitments.

    `closing`: the close that knew them so, one beyond the last for what is known now; 0 of books that no close had.
    """

    namespaces: OwnershipBook
    consumers: OwnershipBook
    card: CorrectedRateCard
    policies: PolicyBook
    carbon: CarbonBook
    late_samples: Sequence[tuple[Interval, int]] = ()
    commitments: CommitmentBook = field(default_factory=lambda: CommitmentBook(()))
    closing: int = 0

    @cached_property
    def carried(self) -> Sequence[CarriedRule]:
        """What the platform carries of holds that were ended; asked for once, of however many windows."""
        return carried_rules()

    def device_changes(self) -> set[datetime]:
        """Every instant that cuts usage of devices: commitments are used up piece by piece, so all readers cut alike."""
        policies = self.policies.changes() | self.carbon.changes() | self.commitments.changes()
        return self.card.changes() | self.namespaces.changes() | policies

    def last_sample(self, window: Interval) -> int:
        """The last efficiency sample that counts for a window although it came after its close; 0 for none."""
        return max((last for when, last in self.late_samples if when.overlap(window)), default=0)


def gpu_seconds(device_us: Decimal) -> Decimal:
    """Device-microseconds as device-seconds, exact."""
    return EXACT.scaleb(device_us, -6)
