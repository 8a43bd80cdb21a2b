"""Reference data of rating: owners, prices and policies, read once for one assessment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from billing.rates.selectors import CarbonBook, PolicyBook, interruption_rules
from billing.rating.retroactive import CorrectedRateCard
from billing.tenancy.ownership import OwnershipBook
from billing.tenancy.showback import BillingModes, billing_modes
from metering.intervals import Interval
from pricing.commitments import CommitmentBook
from pricing.interruptions import InterruptionRule
from pricing.meters import GPU_TIME
from pricing.money import EXACT
from pricing.rating import Unpriced


@dataclass(frozen=True)
class ReferenceData:
    """Owners of namespaces and consumers, the price list, policies, late samples that count, and commitments.

    `close_seq`: the close that knew these data, one beyond the last for what is known now; 0 for data of no close.
    """

    namespaces: OwnershipBook
    consumers: OwnershipBook
    card: CorrectedRateCard
    policies: PolicyBook
    carbon: CarbonBook
    late_samples: Sequence[tuple[Interval, int]] = ()
    commitments: CommitmentBook = field(default_factory=lambda: CommitmentBook(()))
    close_seq: int = 0

    @cached_property
    def carried(self) -> Sequence[InterruptionRule]:
        """Return the interruption rules, by which the platform waives time of ended allocations; read only once."""
        return interruption_rules()

    @cached_property
    def modes(self) -> BillingModes:
        """Return which teams are charged and which are in showback; read once."""
        return billing_modes()

    def device_pieces(self, window: Interval) -> list[Interval]:
        """Cut the window wherever an owner, price, policy, carbon factor or commitment changes.

        Commitments are used up piece by piece, so all readers of device usage cut alike.
        """
        policies = self.policies.changes() | self.carbon.changes() | self.commitments.changes()
        return window.cut(self.card.changes() | self.namespaces.changes() | policies)

    def token_pieces(self, window: Interval) -> list[Interval]:
        """Cut the window wherever an owner or price of tokens changes."""
        return window.cut(self.card.changes() | self.consumers.changes())

    def last_sample(self, window: Interval) -> int:
        """Return the last efficiency sample that counts for a window although it came after its close; 0 for none."""
        return max((last for when, last in self.late_samples if when.overlap(window)), default=0)


def as_counted(item: Unpriced) -> tuple[Decimal, str]:
    """Return unpriced usage in the units of exceptions: device time in GPU-seconds, all else in its meter's base unit."""
    in_seconds = item.unit == GPU_TIME.base_unit
    return (gpu_seconds(item.quantity), "gpu_seconds") if in_seconds else (item.quantity, item.unit)


def gpu_seconds(device_us: Decimal) -> Decimal:
    """Convert device-microseconds to device-seconds, exactly."""
    return EXACT.scaleb(device_us, -6)
