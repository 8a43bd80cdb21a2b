"""What rating looks things up in: owners, prices and policies, read once for one assessment."""

from dataclasses import dataclass
from decimal import Decimal

from billing.rates.selectors import PolicyBook
from billing.rating.corrected import CorrectedRateCard
from billing.tenancy.ownership import OwnershipBook
from pricing.money import EXACT


@dataclass(frozen=True)
class Books:
    """Owners of namespaces and consumers, the price list, the efficiency policies."""

    namespaces: OwnershipBook
    consumers: OwnershipBook
    card: CorrectedRateCard
    policies: PolicyBook


def gpu_seconds(device_us: Decimal) -> Decimal:
    """Device-microseconds as device-seconds, exact."""
    return EXACT.scaleb(device_us, -6)
