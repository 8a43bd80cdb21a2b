"""What the platform carries of holds that preemption, eviction or the loss of a node ended.

The price line stays whole; what the platform carries is a line of its own with the policy and the end reason, so that the
team sees what it would have paid. In the account of capacity that time is the platform's.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from billing.rates.selectors import interruption_rules
from billing.tenancy.ownership import OwnershipBook
from billing.usage.interruptions import CarriedRule, CarriedTime, carried_times
from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.rating import GpuUsage, InterruptedUsage

if TYPE_CHECKING:
    from billing.rating.reference_data import ReferenceData

MICROSECONDS_PER_HOUR: Final = 3_600_000_000


def carried_rules() -> list[CarriedRule]:
    """The rules in microseconds."""
    return [
        CarriedRule(rule.policy, rule.reason, rule.valid_from, rule.valid_until, _microseconds(rule.hours))
        for rule in interruption_rules()
    ]


def _microseconds(hours: Decimal | None) -> int | None:
    return None if hours is None else int(hours * MICROSECONDS_PER_HOUR)


def interrupted_usage(
    pieces: Sequence[Interval], epochs: EpochFilter, reference_data: "ReferenceData", month: str, *, correction: bool,
    namespaces: Sequence[tuple[str, str]] | None = None,
) -> list[InterruptedUsage]:  # fmt: skip
    """Carried time of teams in the pieces; what nobody owns or the platform holds itself is not in here.

    `namespaces`: only of these, (cluster, namespace).
    """
    carried = carried_times(pieces, epochs, reference_data.carried, namespaces=namespaces)
    found = (interrupted_of(item, pieces, reference_data.namespaces, month, correction) for item in carried)
    return [item for item in found if item is not None]


def interrupted_of(
    item: CarriedTime, pieces: Sequence[Interval], owners: OwnershipBook, month: str, correction: bool
) -> InterruptedUsage | None:
    """Carried time as usage of the team that held the devices."""
    at = pieces[item.piece].start
    owner = owners.owner(item.cluster, item.namespace, at)
    if owner is None or owner.platform:
        return None
    usage = GpuUsage(
        owner.team, False, item.cluster, item.namespace, item.accelerator, item.resource, at, item.device_us, item.unit_us,
        month, correction,
    )  # fmt: skip
    return InterruptedUsage(usage, item.policy, item.reason)
