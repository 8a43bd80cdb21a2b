"""Rating of usage with a rate card and policies into charges, each with its explanation. Sums, prices, rounds once.

Quantities stay integers or exact decimals: device-microseconds (units x device_fraction x microseconds), unit-microseconds,
tokens. Usage is already cut at every change of price and ownership, so that one instant of each piece decides its price.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from json.encoder import encode_basestring_ascii as _json
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec import structs

from pricing.carbon import kg_co2
from pricing.meters import GPU_TIME, METERS, TOKENS, OfKind
from pricing.money import EXACT, amount_places, round_part
from pricing.rate_card import MILLION_TOKENS, SLICE_HOURS, GpuPrice, RateCard, UnpricedError

AMOUNT: Final = "Amount"
"""Unit of allocated cost: its quantity is money, split to the cent, at a price of 1."""
DIVISOR: Final = {unit: size for meter in METERS.values() for unit, size in meter.units.items()} | {AMOUNT: 1}
"""Base units (microseconds or tokens) in one pricing unit."""


class GpuUsage(msgspec.Struct, frozen=True, gc=False):
    """Device time of one team's namespace within one piece of time without a change of price or ownership."""

    team: str
    platform: bool
    cluster: str
    namespace: str
    accelerator: str
    resource: str
    at: datetime
    device_us: Decimal
    unit_us: Decimal
    charge_period: str
    correction: bool = False


class TokenSum(msgspec.Struct, frozen=True):
    """Tokens of one consumer and model by class, within one piece of time."""

    team: str
    consumer: str
    model: str
    at: datetime
    tokens: Mapping[str, int]
    charge_period: str
    correction: bool = False


_FLAG: Final = {True: "true", False: "false"}


class LineKey(OfKind, msgspec.Struct, frozen=True, order=True, gc=False):
    """Key of a line: all fields that distinguish lines; sorts as the lines of an invoice do."""

    team: str
    platform: bool
    correction: bool
    charge_period: str
    kind: str
    cluster: str = ""
    namespace: str = ""
    consumer: str = ""
    accelerator: str = ""
    sku: str = ""
    token_class: str = ""
    unit: str = ""
    price_version: str = ""
    policy: str = ""
    reason: str = ""

    @classmethod
    def of(cls, row: Any, **others: Any) -> "LineKey":
        """Build the key from an object with the fields of a key as attributes; `others`: fields that it does not have."""
        return cls(**{name: others[name] if name in others else getattr(row, name) for name in cls.__struct_fields__})

    def changed(self, **fields: str) -> "LineKey":
        """Return a copy of the key with other fields."""
        return structs.replace(self, **fields)

    def digest(self) -> str:
        """Return the hash of the key's JSON with sorted names, for a unique index over names of any length."""
        # Written by hand for speed; the bytes must stay those of json.dumps(sort_keys=True), since digests are stored.
        text = (
            f'{{"accelerator": {_json(self.accelerator)}, "charge_period": {_json(self.charge_period)}, '
            f'"cluster": {_json(self.cluster)}, "consumer": {_json(self.consumer)}, '
            f'"correction": {_FLAG[self.correction]}, "kind": {_json(self.kind)}, "namespace": {_json(self.namespace)}, '
            f'"platform": {_FLAG[self.platform]}, "policy": {_json(self.policy)}, '
            f'"price_version": {_json(self.price_version)}, "reason": {_json(self.reason)}, "sku": {_json(self.sku)}, '
            f'"team": {_json(self.team)}, "token_class": {_json(self.token_class)}, "unit": {_json(self.unit)}}}'
        )
        return sha256(text.encode()).hexdigest()

    @property
    def order(self) -> tuple[str | bool, ...]:
        """Return all fields in sort order."""
        return structs.astuple(self)


@dataclass(frozen=True, slots=True)
class Carbon:
    """Kilograms of CO2: by the average of the grid (location), and by the electricity contracts (market).

    A factor has the same shape: kilograms per kWh at the meter of the building.
    """

    location_kg: Fraction
    market_kg: Fraction


NO_CARBON: Final = Carbon(Fraction(0), Fraction(0))
CarbonAt = Callable[[str, datetime], Carbon | None]
"""Lookup of the factors of a cluster at an instant; None where they are not set."""


class Charge(msgspec.Struct, frozen=True):
    """Priced sum of usage. `usage_quantity` in base units of `key.unit`, `unit_price` per pricing unit."""

    key: LineKey
    usage_quantity: Decimal
    unit_price: Decimal
    facility_kw: Decimal | None = None
    carbon: Carbon | None = None

    @property
    def quantity(self) -> Fraction:
        """Return the exact quantity in pricing units."""
        return Fraction(self.usage_quantity) / DIVISOR[self.key.unit]

    @property
    def amount(self) -> Decimal:
        """Return the exact quantity times the price, rounded once, half up away from zero.

        >>> key = LineKey("nlp", False, False, "2026-10", "gpu", unit="GPU-Hours")
        >>> Charge(key, Decimal(8 * 9433 * 10**6), Decimal("10")).amount  # 8 GPUs for 2 h 37 min 13 s
        Decimal('209.62')
        """
        return round_part(EXACT.multiply(self.usage_quantity, self.unit_price), DIVISOR[self.key.unit], amount_places())

    def rounded_quantity(self, places: int) -> Decimal:
        """Return the quantity in pricing units, rounded for people and documents; amounts never follow from it."""
        return round_part(self.usage_quantity, DIVISOR[self.key.unit], places)

    @property
    def energy_kwh(self) -> Fraction | None:
        """Return the estimated energy at the meter of the building; None where the power of the device is not known."""
        return None if self.facility_kw is None else self.quantity * Fraction(self.facility_kw)


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Usage of a team without a price in force: an exception, never a charge of zero. `late`: of a closed month."""

    sku: str
    version: str | None
    quantity: Decimal
    unit: str
    team: str = ""
    late: bool = False


@dataclass(frozen=True)
class Rated:
    """Result of rating: every unit of usage is in a charge or in `unpriced`."""

    charges: list[Charge] = field(default_factory=list)
    unpriced: list[Unpriced] = field(default_factory=list)


class _Sums:
    def __init__(self) -> None:
        self.lines: dict[LineKey, tuple[Decimal, Decimal, Decimal | None]] = {}
        self.unpriced: dict[tuple[str, str, str, str], Decimal] = {}
        self.carbon: dict[LineKey, Carbon | None] = {}

    def emit(self, key: LineKey, kwh: Fraction | None, factors: Carbon | None) -> None:
        """Add the emissions of a part of a line; one part without energy or factors leaves the line without a figure."""
        before = self.carbon.get(key, NO_CARBON)
        if before is None or kwh is None or factors is None:
            self.carbon[key] = None
            return
        self.carbon[key] = Carbon(
            before.location_kg + kg_co2(kwh, factors.location_kg), before.market_kg + kg_co2(kwh, factors.market_kg)
        )

    def add(self, key: LineKey, quantity: Decimal, price: Decimal, facility_kw: Decimal | None = None) -> None:
        before = self.lines.get(key)
        self.lines[key] = (quantity if before is None else EXACT.add(before[0], quantity), price, facility_kw)

    def miss(self, error: UnpricedError, quantity: Decimal, unit: str, team: str) -> None:
        key = (error.sku, error.version or "", unit, team)
        self.unpriced[key] = EXACT.add(self.unpriced.get(key, Decimal(0)), quantity)

    def rated(self) -> Rated:
        charges = [
            Charge(key, *sums, self.carbon.get(key))
            for key, sums in sorted(self.lines.items(), key=itemgetter(0))
            if sums[0]
        ]
        missing = [
            Unpriced(sku, version or None, quantity, unit, team)
            for (sku, version, unit, team), quantity in sorted(self.unpriced.items())
        ]
        return Rated(charges, missing)


def rate_gpu(usages: Iterable[GpuUsage], card: RateCard, carbon_at: CarbonAt | None = None) -> Rated:
    """Rate device usage: one charge per team, cluster, namespace, SKU and price version.

    With `carbon_at` a charge also has its emissions, where the power of the device and the factors are known.
    """
    priced: list[tuple[tuple[LineKey, GpuPrice], GpuUsage]] = []
    sums = _Sums()
    for usage in usages:
        # an allocation of no length needs no price, so it cannot be unpriced either
        if not usage.unit_us:
            continue
        try:
            priced.append((gpu_line(usage, card), usage))
        except UnpricedError as error:
            sums.miss(error, usage.device_us, GPU_TIME.base_unit, usage.team)
    return Rated(gpu_charges(priced, carbon_at), sums.rated().unpriced)


def gpu_charges(
    priced: Iterable[tuple[tuple[LineKey, GpuPrice], GpuUsage]], carbon_at: CarbonAt | None = None
) -> list[Charge]:
    """Sum device usage with known line and price into charges, with energy and emissions."""
    sums = _Sums()
    for (key, price), usage in priced:
        quantity = measured(usage, price)
        sums.add(key, quantity, price.price, price.facility_kw)
        if carbon_at is not None:
            power = price.facility_kw
            kwh = None if power is None else Fraction(quantity) / DIVISOR[price.unit] * Fraction(power)
            sums.emit(key, kwh, carbon_at(usage.cluster, usage.at))
    return sums.rated().charges


def gpu_line(usage: GpuUsage, card: RateCard) -> tuple[LineKey, GpuPrice]:
    """Return the line of a piece of device usage and its price.  Raises UnpricedError."""
    version, price = card.gpu_price(usage.accelerator, usage.resource, usage.at)
    key = LineKey(  # positional arguments take a third of the time
        usage.team, usage.platform, usage.correction, usage.charge_period, GPU_TIME.name, usage.cluster, usage.namespace, "",
        price.accelerator, price.sku, "", price.unit, version.name,
    )  # fmt: skip
    return key, price


def measured(usage: GpuUsage, price: GpuPrice) -> Decimal:
    """Return the microseconds that the price counts: of whole devices, or of slices."""
    return usage.unit_us if price.unit == SLICE_HOURS else usage.device_us


def rate_tokens(sums_of_tokens: Iterable[TokenSum], card: RateCard) -> Rated:
    """Rate tokens: one charge per team, consumer, model, class and price version."""
    sums = _Sums()
    for usage in sums_of_tokens:
        for token_class, count in usage.tokens.items():
            if not count:
                continue
            try:
                key, price = token_line(usage, token_class, card)
            except UnpricedError as error:
                sums.miss(error, Decimal(count), TOKENS.base_unit, usage.team)
                continue
            sums.add(key, Decimal(count), price)
    return sums.rated()


def token_line(usage: TokenSum, token_class: str, card: RateCard) -> tuple[LineKey, Decimal]:
    """Return the line of tokens of a class and their price.  Raises UnpricedError."""
    version, price = card.token_price(usage.model, token_class, usage.at)
    key = LineKey(
        usage.team, False, usage.correction, usage.charge_period, TOKENS.name, "", "", usage.consumer, "", usage.model,
        token_class, MILLION_TOKENS, version.name,
    )  # fmt: skip
    return key, price


class JudgedUsage(msgspec.Struct, frozen=True):
    """Usage of one scored job, and the verdict of the policy."""

    usage: GpuUsage
    policy: str
    multiplier: Decimal
    reason: str


class InterruptedUsage(msgspec.Struct, frozen=True):
    """Usage that the platform carries by a policy on the end of the allocation."""

    usage: GpuUsage
    policy: str
    reason: str


def rate_efficiency(judged: Iterable[JudgedUsage], card: RateCard) -> Rated:
    """Rate rewards and penalties as separate lines: quantity x price x (multiplier - 1). Usage stays at list price."""
    # the platform pays itself no rewards and no penalties
    changes = ((item, item.multiplier - 1) for item in judged if not item.usage.platform)
    return _rate_changes("efficiency", changes, card)


def rate_interruptions(interrupted: Iterable[InterruptedUsage], card: RateCard) -> Rated:
    """Rate usage that the platform carries as separate credit lines: quantity x price, negative.

    Source: F18, credit for a fault of the platform.
    """
    return _rate_changes("interruption", ((item, Decimal(-1)) for item in interrupted), card)


def _rate_changes(
    kind: str, changes: Iterable[tuple[JudgedUsage | InterruptedUsage, Decimal]], card: RateCard
) -> Rated:
    """Rate changes, each a share of the list price. Usage without a price was already reported by `rate_gpu`."""
    sums = _Sums()
    for item, change in changes:
        if not change:
            continue
        try:
            line, price = gpu_line(item.usage, card)
        except UnpricedError:
            continue
        key = line.changed(kind=kind, policy=item.policy, reason=item.reason)
        sums.add(key, measured(item.usage, price), EXACT.multiply(price.price, change))
    return sums.rated()
