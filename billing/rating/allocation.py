"""Idle time of pools and shared cost of a month: the share of each team, and the charges that a policy makes of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from billing.rates.selectors import allocation_policy_at
from billing.rating.models import PoolCapacity
from billing.usage.selectors import capacity_sums
from metering.accelerators import device_share
from metering.intervals import Interval
from pricing.allocation import AllocationPolicy, Method, Split, idle_charges, shared_charges
from pricing.money import EXACT, round_to
from pricing.rating import Charge

Pool = tuple[str, str]
PROPORTIONAL = Split(Method.PROPORTIONAL)


@dataclass(frozen=True, slots=True)
class PoolIdle:
    """A pool's capacity and idle time in device-microseconds, and the idle time that falls to each team."""

    cluster: str
    accelerator: str
    capacity_us: Decimal
    idle_us: Decimal
    shares: Mapping[str, Decimal]


def capacity_of(window: Interval, close_seq: int | None) -> dict[Pool, Decimal]:
    """Return the device-microseconds that each pool offered, as close `close_seq` stored them or (None) as known now."""
    if close_seq is not None:
        rows = PoolCapacity.objects.filter(close_seq=close_seq)
        return {(row.cluster, row.accelerator): row.capacity_us for row in rows}
    sums: dict[Pool, Fraction] = defaultdict(Fraction)
    for item in capacity_sums(window):
        sums[item.cluster, item.accelerator] += Fraction(item.unit_us) * device_share(item.resource)
    return {pool: round_to(capacity, 0) for pool, capacity in sums.items()}


def idle_of(
    capacity: Mapping[Pool, Decimal], held: Mapping[Pool, Decimal], used: Mapping[Pool, Mapping[str, Decimal]],
    policy: AllocationPolicy | None,
) -> list[PoolIdle]:  # fmt: skip
    """Return the idle time of each pool; shares follow the policy's method, or use if no rule covers the pool."""
    found = []
    for pool, offered in sorted(capacity.items()):
        # capacity that an agent reports too low must not become negative idle time
        idle = max(EXACT.subtract(offered, held.get(pool, Decimal(0))), Decimal(0))
        rule = policy.rule_of(*pool) if policy else None
        weights = (rule.split if rule else PROPORTIONAL).weights(used.get(pool, {}))
        whole = sum(weights.values(), Fraction(0))
        shares = {team: round_to(Fraction(idle) * weight / whole, 0) for team, weight in weights.items()}
        found.append(PoolIdle(*pool, offered, idle, shares))
    return found


def allocated(
    policy: AllocationPolicy | None, month: str, pools: Iterable[PoolIdle], used: Mapping[Pool, Mapping[str, Decimal]],
    charges: Iterable[Charge],
) -> list[Charge]:  # fmt: skip
    """Return what the policy of a month charges for idle time and shared cost; nothing if there is no policy."""
    if policy is None:
        return []
    found = []
    for pool in pools:
        rule = policy.rule_of(pool.cluster, pool.accelerator)
        if rule is not None and pool.idle_us:
            by_team = used.get((pool.cluster, pool.accelerator), {})
            found += idle_charges(policy, rule, pool.idle_us, by_team, month)
    direct = _direct(charges)
    for shared in policy.shared:
        found += shared_charges(policy, shared, direct, month)
    return found


def split_by_charges(month_start: datetime) -> bool:
    """Return True if a policy splits a cost by the teams' charges: no share is then known before every team is rated."""
    policy = allocation_policy_at(month_start)
    return policy is not None and any(shared.split.method is not Method.FIXED for shared in policy.shared)


def _direct(charges: Iterable[Charge]) -> dict[str, Decimal]:
    """Return what each team is charged for its own use, without corrections of earlier months."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for charge in charges:
        if not charge.key.platform and not charge.key.correction:
            sums[charge.key.team] += charge.amount
    return dict(sums)

