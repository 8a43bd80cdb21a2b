"""PURE: allocation of idle and shared cost to teams by a dated policy: in proportion to use, evenly, or by fixed shares.

An amount is rounded once as a whole and split by largest remainder, ties to the earlier name, so that parts add up to it.
Without a policy idle time is shown and billed to nobody. Where no team used a pool its idle time stays with the platform.

Source: FinOps on shared cost (proportional, even, fixed share); F02 to F06 for the split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from metering.messages import Message, UserError
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import Number, fraction_of, round_amount, split_amount
from pricing.rating import AMOUNT, Charge, LineKey

IDLE: Final = "idle"
SHARED: Final = "shared"
ALLOCATED: Final = (IDLE, SHARED)


class Method(StrEnum):
    """Way of splitting an amount: in proportion to use, equally among the teams that used anything, or by fixed shares."""

    PROPORTIONAL = "proportional"
    EVEN = "even"
    FIXED = "fixed"


class AllocationError(UserError, ValueError):
    """Shares that cannot split an amount."""

    code = "cost_allocation"


@dataclass(frozen=True, slots=True)
class Split:
    """Method of a split; `shares` are ratios by team that add up to 1, for FIXED only."""

    method: Method
    shares: Mapping[str, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.method is Method.FIXED) != bool(self.shares):
            raise AllocationError(Message("shares are given for the method fixed, and only there"))
        if self.shares and (sum(self.shares.values()) != 1 or any(share <= 0 for share in self.shares.values())):
            raise AllocationError(Message(
                "shares %(names)s must be above 0 and add up to 1", names=", ".join(map(str, self.shares.values()))
            ))

    def weights(self, used: Mapping[str, Number]) -> dict[str, Fraction]:
        """Return the weight of each team that gets a part, by name; `used` is the use of each team."""
        if self.method is Method.FIXED:
            # sorted by name: ties of the split must not depend on the order of the input
            return {team: fraction_of(share) for team, share in sorted(self.shares.items())}
        known = {team: fraction_of(amount) for team, amount in sorted(used.items()) if amount > 0}
        return known if self.method is Method.PROPORTIONAL else dict.fromkeys(known, Fraction(1))

    def of(self, amount: Decimal, used: Mapping[str, Number]) -> dict[str, Decimal]:
        """Split an amount of 2 decimals into parts by team that add up to it; return {} where no team used anything.

        >>> Split(Method.EVEN).of(Decimal("100.00"), {"a": 5, "b": 1, "c": 1})
        {'a': Decimal('33.34'), 'b': Decimal('33.33'), 'c': Decimal('33.33')}
        """
        weights = self.weights(used)
        if not weights:
            return {}
        return dict(zip(weights, split_amount(amount, list(weights.values())), strict=True))


@dataclass(frozen=True, slots=True)
class IdleRule:
    """Rule for idle time of a pool, at `price` per GPU-hour."""

    cluster: str
    accelerator: str
    price: Decimal
    split: Split


@dataclass(frozen=True, slots=True)
class SharedRule:
    """Monthly cost of the platform; PROPORTIONAL splits it by the direct charges of each team.

    `measured`: the amount was measured (storage kept, requests) in one month, the one with which the policy begins.
    """

    name: str
    amount: Decimal
    split: Split
    measured: bool = False


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """Allocation rules for billing months that begin in [valid_from, valid_until)."""

    name: str
    valid_from: datetime
    valid_until: datetime | None = None
    idle: tuple[IdleRule, ...] = ()
    shared: tuple[SharedRule, ...] = ()

    def unmeasured(self, month_start: datetime) -> tuple[SharedRule, ...]:
        """Return measured costs without an amount for the month that begins at `month_start`: amounts are never reused."""
        return tuple(one for one in self.shared if one.measured) if month_start != self.valid_from else ()

    def rule_of(self, cluster: str, accelerator: str) -> IdleRule | None:
        """Return the rule of a pool, or None: then its idle time is shown and not billed."""
        return next((one for one in self.idle if (one.cluster, one.accelerator) == (cluster, accelerator)), None)


def idle_amount(rule: IdleRule, idle_us: Decimal) -> Decimal:
    """Return the amount of idle time in device-microseconds, rounded once.

    >>> idle_amount(IdleRule("hq-1", "H800", Decimal("6"), Split(Method.EVEN)), Decimal(10 * 3_600_000_000))
    Decimal('60.00')
    """
    return round_amount(Fraction(idle_us) / MICROSECONDS_PER_HOUR * fraction_of(rule.price))


def idle_charges(
    policy: AllocationPolicy, rule: IdleRule, idle_us: Decimal, used: Mapping[str, Number], month: str
) -> list[Charge]:
    """Return the idle time of a pool as one charge per team; the quantity of a charge is the amount, its unit price 1."""
    key = _key(policy, IDLE, rule.accelerator, rule.split.method, month)
    return _charges(
        key.changed(cluster=rule.cluster, accelerator=rule.accelerator), rule.split.of(idle_amount(rule, idle_us), used)
    )


def shared_charges(
    policy: AllocationPolicy, rule: SharedRule, charged: Mapping[str, Number], month: str
) -> list[Charge]:
    """Return a shared cost as one charge per team."""
    return _charges(_key(policy, SHARED, rule.name, rule.split.method, month), rule.split.of(rule.amount, charged))


def _key(policy: AllocationPolicy, kind: str, sku: str, method: Method, month: str) -> LineKey:
    return LineKey(
        team="", platform=False, correction=False, charge_period=month, kind=kind, sku=sku, unit=AMOUNT,
        price_version=policy.name, policy=policy.name, reason=method.value,
    )  # fmt: skip


def _charges(key: LineKey, parts: Mapping[str, Decimal]) -> list[Charge]:
    return [Charge(key.changed(team=team), amount, Decimal(1)) for team, amount in parts.items() if amount]
