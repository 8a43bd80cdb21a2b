"""Rate card of dated price lists: a lookup finds exactly one price, or raises. A missing price is never zero."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

from metering.names import as_name
from pricing.contexts import bounds_by_model

GPU_HOURS: Final = "GPU-Hours"
SLICE_HOURS: Final = "Slice-Hours"
MILLION_TOKENS: Final = "1M Tokens"

TOKEN_CLASSES: Final = ("input", "cache_read", "cache_creation", "output")
"""Disjoint token classes: uncached input, input read from the prompt cache, input written to it, output (with reasoning)."""


class UnpricedError(LookupError):
    """Missing price of `sku` at `instant`."""

    def __init__(self, sku: str, instant: datetime, version: str | None = None) -> None:
        where = f"price version {version}" if version else "no price version in force"
        super().__init__(f"{sku} has no price at {instant.isoformat()} ({where})")
        self.sku = sku
        self.instant = instant
        self.version = version


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """Price per hour of an accelerator, or of a resource that is its own SKU.

    `unit` is the counted quantity: GPU_HOURS are quantity x device_fraction x hours, SLICE_HOURS quantity x hours.
    `facility_kw` is the power of one GPU at the meter of the building (kW x PUE) where a cost sheet gives it.
    """

    price: Decimal
    accelerator: str = ""
    resource: str = ""
    unit: str = GPU_HOURS
    facility_kw: Decimal | None = None

    @property
    def sku(self) -> str:
        """Return the name on the invoice line: the resource where it is priced by itself, else the accelerator."""
        return self.resource or self.accelerator


@dataclass(frozen=True)
class PriceVersion:
    """Price list version: the complete list in force in [valid_from, valid_until); prices per GPU-hour and per 1M tokens.

    `tokens` is keyed by model and class; with buckets of prompt lengths, by model and priced class (`pricing.contexts`).
    """

    name: str
    valid_from: datetime
    valid_until: datetime | None
    gpu: tuple[GpuPrice, ...] = ()
    tokens: dict[tuple[str, str], Decimal] = field(default_factory=dict)

    def covers(self, instant: datetime) -> bool:
        """Return True if `instant` lies in [valid_from, valid_until)."""
        return self.valid_from <= instant and (self.valid_until is None or instant < self.valid_until)


class RateCard:
    """Lookup of prices in all price list versions; their ranges do not overlap."""

    def __init__(self, versions: Iterable[PriceVersion]) -> None:
        self.versions = sorted(versions, key=lambda version: version.valid_from)
        for earlier, later in zip(self.versions, self.versions[1:], strict=False):
            if earlier.valid_until is None or later.valid_from < earlier.valid_until:
                raise ValueError(f"price versions {earlier.name} and {later.name} overlap")
        self._gpu = {
            version.name: {(price.accelerator, price.resource): price for price in version.gpu}
            for version in self.versions
        }
        self._bounds = {version.name: bounds_by_model(version.tokens) for version in self.versions}

    def changes(self) -> set[datetime]:
        """Return every instant at which a price list version begins or ends."""
        return {at for version in self.versions for at in (version.valid_from, version.valid_until) if at is not None}

    def version_at(self, instant: datetime) -> PriceVersion | None:
        """Return the version in force at `instant`, or None."""
        return next((version for version in self.versions if version.covers(instant)), None)

    def gpu_price(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        """Return the version and the price of one unit of `resource` on `accelerator`.

        The most specific entry wins: resource on this accelerator, the resource anywhere (also where it is listed
        under `accelerator`), the accelerator itself. Names stored before names were normalised are also looked up as
        `as_name` writes them.  Raises UnpricedError.
        """
        version = self.version_at(instant)
        if version is None:
            raise UnpricedError(accelerator, instant)
        prices = self._gpu[version.name]
        for name, part in dict.fromkeys([(accelerator, resource), (as_name(accelerator), as_name(resource))]):
            # most specific first; a slice may also be listed as if it were an accelerator
            for key in ((name, part), ("", part), (part, ""), (name, "")):
                price = prices.get(key)
                if price is not None:
                    return version, price
        raise UnpricedError(accelerator, instant, version.name)

    def list_price(self, accelerator: str, instant: datetime) -> Decimal | None:
        """Return the price of a whole device, or None where it has none."""
        try:
            return self.gpu_price(accelerator, "", instant)[1].price
        except UnpricedError:
            return None

    def context_bounds(self, instant: datetime) -> dict[str, tuple[int, ...]]:
        """Return the ends of the buckets of prompt lengths at `instant`, by model; models with one price are left out."""
        version = self.version_at(instant)
        return {} if version is None else self._bounds[version.name]

    def token_price(self, model: str, token_class: str, instant: datetime) -> tuple[PriceVersion, Decimal]:
        """Return the price of 1M tokens of `token_class` (with its bucket, if any) of `model`.  Raises UnpricedError."""
        version = self.version_at(instant)
        if version is None:
            raise UnpricedError(f"{model} {token_class}", instant)
        price = version.tokens.get((model, token_class))
        if price is None:
            price = version.tokens.get((as_name(model), token_class))
        if price is None:
            raise UnpricedError(f"{model} {token_class}", instant, version.name)
        return version, price
