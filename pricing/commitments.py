"""PURE: take-or-pay commitments: the part of a month's usage that they cover, and the hours that stay unused.

A team buys a number of GPU-hours of an accelerator per month at a contracted price, used or not. Within a month hours are
used in order of time; where several namespaces have devices at once, in order of their names. Of several commitments in
force at once the one that ends first within the month is used first; of those that run to the end of the month, the one
that began first. Usage beyond them is on-demand. Hours do not roll over. Time that the platform carries uses no hours.

Source: FE13 and vector F13.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from msgspec import structs

from metering.intervals import Interval
from pricing.money import EXACT, round_to
from pricing.rate_card import GPU_HOURS, GpuPrice, RateCard, UnpricedError
from pricing.rating import DIVISOR, CarbonAt, Charge, GpuUsage, LineKey, Rated, gpu_charges, gpu_line

KIND: Final = "commitment"
USED: Final = "used"
UNUSED: Final = "unused"
HOURS_PLACES: Final = 6
WITHHELD_FOR: Final = timedelta(days=3)
"""Period without a pace, as with forecasts: earlier there is too little usage to extrapolate."""
PACE_PLACES: Final = 4


@dataclass(frozen=True, slots=True)
class Commitment:
    """`gpu_hours` of `accelerator` a month at `price` each, in force in [valid_from, valid_until), for one team."""

    name: str
    team: str
    accelerator: str
    gpu_hours: Decimal
    price: Decimal
    valid_from: datetime
    valid_until: datetime | None = None

    def covers(self, instant: datetime) -> bool:
        """Return True if `instant` lies in [valid_from, valid_until)."""
        return self.valid_from <= instant and (self.valid_until is None or instant < self.valid_until)

    def overlaps(self, start: datetime, end: datetime | None) -> bool:
        """Return True if the commitment is in force at some time in [start, end); `end` None: without end."""
        return (self.valid_until is None or start < self.valid_until) and (end is None or self.valid_from < end)

    def part_of(self, month: Interval) -> Interval | None:
        """Return the part of a month in which the commitment is in force, or None."""
        start, end = max(self.valid_from, month.start), min(self.valid_until or month.end, month.end)
        return Interval(start, end) if start < end else None

    def bought(self, month: Interval) -> Decimal:
        """Return the device-microseconds bought for a month; where it starts or ends within, in proportion to elapsed time.

        The part is in GPU-hours with 6 decimals, half up, so that the quantity on a document is the quantity that is billed.
        """
        part = self.part_of(month)
        if part is None:
            return Decimal(0)
        hours = Fraction(self.gpu_hours) * Fraction(part.microseconds, month.microseconds)
        return EXACT.multiply(round_to(hours, HOURS_PLACES), Decimal(DIVISOR[GPU_HOURS]))


@dataclass(frozen=True, slots=True)
class Covered:
    """Usage that a commitment pays for."""

    usage: GpuUsage
    commitment: Commitment


@dataclass(frozen=True, slots=True)
class Unused:
    """Device-microseconds bought and not used; `returned`: hours billed as unused that late usage now takes."""

    commitment: Commitment
    device_us: Decimal
    month: str
    returned: bool = False


@dataclass
class Cover:
    """Usage split into the part that commitments pay for and the `rest`, in order of time, and unused hours."""

    covered: list[Covered] = field(default_factory=list)
    rest: list[GpuUsage] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)


class CommitmentBook:
    """Dated commitments of all teams; those of one team on one accelerator add up where they overlap."""

    def __init__(self, commitments: Iterable[Commitment]) -> None:
        self.commitments = sorted(commitments, key=lambda one: (one.team, one.accelerator, one.valid_from))

    def changes(self) -> set[datetime]:
        """Return every instant at which a commitment begins or ends."""
        return {at for one in self.commitments for at in (one.valid_from, one.valid_until) if at is not None}

    def of_month(self, month: Interval) -> list[Commitment]:
        """Return the commitments that are in force in any part of a month."""
        return [one for one in self.commitments if one.part_of(month) is not None]

    def beside(self, one: Commitment, month: Interval) -> list[Commitment]:
        """Return the other commitments that pay for the same usage at some time of a month."""
        part = one.part_of(month)
        found = self.of_month(part) if part else []
        alike = [other for other in found if (other.team, other.accelerator) == (one.team, one.accelerator)]
        return [other for other in alike if other.name != one.name]

    def for_usage(self, usage: GpuUsage, card: RateCard) -> list[Commitment]:
        """Return the commitments that may pay for a piece of usage; none for slices that have their own price."""
        found = [
            one for one in self.commitments
            if one.team == usage.team and one.accelerator == usage.accelerator and one.covers(usage.at)
        ]  # fmt: skip
        if not found or usage.platform:
            return []
        try:
            _, price = card.gpu_price(usage.accelerator, usage.resource, usage.at)
        except UnpricedError:
            return []
        # a slice or resource with its own price is not the accelerator that was bought
        return found if _whole_device(price) else []


def _whole_device(price: GpuPrice) -> bool:
    return price.unit == GPU_HOURS and price.sku == price.accelerator


def first_to_end(one: Commitment, month: Interval) -> tuple[datetime, datetime, str]:
    """Return the sort key by which commitments are used: first the one that ends first in the month.

    An end after the month does not count: it may be agreed after the close and must not change what was billed.
    """
    return min(one.valid_until or month.end, month.end), one.valid_from, one.name


UsageId = tuple[datetime, str, str, str, str]


def usage_id(usage: GpuUsage) -> UsageId:
    """Return the key of a piece of device usage within one rating; sorts in the order in which commitments are used."""
    return (usage.at, usage.cluster, usage.namespace, usage.accelerator, usage.resource)


def carried_of(carried: Iterable[GpuUsage]) -> dict[UsageId, Decimal]:
    """Sum device-microseconds that the platform carries, by piece of usage."""
    sums: dict[UsageId, Decimal] = {}
    for usage in carried:
        name = usage_id(usage)
        sums[name] = EXACT.add(sums.get(name, Decimal(0)), usage.device_us)
    return sums


def _eligible(usage: GpuUsage, carried: dict[UsageId, Decimal]) -> Decimal:
    return max(EXACT.subtract(usage.device_us, carried.get(usage_id(usage), Decimal(0))), Decimal(0))


def cover(
    usages: Sequence[GpuUsage], carried: Iterable[GpuUsage], book: CommitmentBook, card: RateCard, *,
    window: Interval, month: str, used_before: dict[str, Decimal] | None = None,
) -> Cover:  # fmt: skip
    """Split the usage of a month into committed, on-demand and unused.

    `used_before` is None for the month's own close, which bills unused hours. For late usage it has the hours that
    commitments paid for in earlier closes: late usage takes hours that were billed as unused, and those are credited.
    """
    late = used_before is not None
    bought = {one.name: one.bought(window) for one in book.of_month(window)}
    left = {
        name: max(EXACT.subtract(hours, (used_before or {}).get(name, Decimal(0))), Decimal(0))
        for name, hours in bought.items()
    }
    free, found, taken = carried_of(carried), Cover(), dict.fromkeys(bought, Decimal(0))
    # the order decides which usage is on-demand: a re-rated month must give the same lines
    for usage in sorted(usages, key=usage_id):
        rest, eligible = usage.device_us, _eligible(usage, free)
        for commitment in sorted(book.for_usage(usage, card), key=lambda one: first_to_end(one, window)):
            name = commitment.name
            if part := min(eligible, left[name]):
                left[name], taken[name] = EXACT.subtract(left[name], part), EXACT.add(taken[name], part)
                eligible, rest = EXACT.subtract(eligible, part), EXACT.subtract(rest, part)
                found.covered.append(Covered(_part(usage, part), commitment))
        if rest == usage.device_us:
            found.rest.append(usage)
        elif rest:
            found.rest.append(_part(usage, rest))
    # late usage takes hours that the close billed as unused: that is the quantity to credit
    quantities = taken if late else left
    found.unused = [
        Unused(one, quantities[one.name], month, late) for one in book.of_month(window) if quantities[one.name]
    ]
    return found


def _part(usage: GpuUsage, device_us: Decimal) -> GpuUsage:
    """Return a part of whole-device usage; its price counts device time only, so both quantities are equal."""
    return structs.replace(usage, device_us=device_us, unit_us=device_us)


def rate_commitments(found: Cover, card: RateCard, carbon_at: CarbonAt | None = None) -> Rated:
    """Rate covered usage at the committed price, one line per namespace and price version, and unused hours as a line.

    Covered usage without a price does not occur: `CommitmentBook.for_usage` asks the rate card.
    """
    charges = gpu_charges(((used_line(item, card), item.usage) for item in found.covered), carbon_at)
    charges += [unused_charge(item) for item in found.unused]
    return Rated(charges)


def used_line(item: Covered, card: RateCard) -> tuple[LineKey, GpuPrice]:
    """Return the line of covered usage, at the committed price."""
    line, price = gpu_line(item.usage, card)
    return line.changed(kind=KIND, policy=item.commitment.name, reason=USED), replace(price, price=item.commitment.price)


def unused_line(item: Unused) -> LineKey:
    """Return the line of unused hours; it has no cluster and no namespace."""
    one = item.commitment
    return LineKey(
        team=one.team, platform=False, correction=item.returned, charge_period=item.month, kind=KIND,
        accelerator=one.accelerator, sku=one.accelerator, unit=GPU_HOURS, price_version=one.name, policy=one.name,
        reason=UNUSED,
    )  # fmt: skip


def unused_charge(item: Unused) -> Charge:
    """Return the charge of unused hours, or the credit for those that late usage takes."""
    price = item.commitment.price
    return Charge(unused_line(item), item.device_us, -price if item.returned else price)


@dataclass(frozen=True, slots=True)
class Pace:
    """Pace of a commitment. `burn`: used share over elapsed share of the time; 1 where exactly all hours will be used.

    `used` and `unused`: GPU-hours expected by the end; `beyond`: hours on demand, over what was bought.
    """

    burn: Decimal
    used: Decimal
    unused: Decimal
    beyond: Decimal


def pace_of(*, bought: Decimal, held: Decimal, part: Interval, now: datetime) -> Pace | None:
    """Extrapolate the use of a commitment over its part of the month at the pace so far.

    expected [GPU-h] = held * part / elapsed.  `held`: GPU-hours that it paid for, and those beyond it. None in the first
    three days, and from the end of the part on, when nothing is left to expect.  Source: FINOPS_PRACTICE, F-1 and burn rate.

    >>> from datetime import UTC
    >>> month = Interval(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    >>> pace = pace_of(bought=Decimal(1000), held=Decimal(250), part=month, now=datetime(2026, 11, 11, tzinfo=UTC))
    >>> [str(value) for value in (pace.burn, pace.used, pace.unused, pace.beyond)]
    ['0.7500', '750.000000', '250.000000', '0.000000']
    """
    if not bought or not part.start + WITHHELD_FOR <= now < part.end:
        return None
    elapsed = Fraction(Interval(part.start, now).microseconds, part.microseconds)
    expected, whole = Fraction(held) / elapsed, Fraction(bought)
    return Pace(
        burn=round_to(Fraction(held) / whole / elapsed, PACE_PLACES), used=round_to(min(expected, whole), HOURS_PLACES),
        unused=round_to(max(whole - expected, Fraction(0)), HOURS_PLACES),
        beyond=round_to(max(expected - whole, Fraction(0)), HOURS_PLACES),
    )  # fmt: skip
