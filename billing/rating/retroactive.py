"""PURE: prices and owners with later corrections applied.

The published facts stay as they were; a correction states what they should have been in a part of closed time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from pricing.rate_card import GpuPrice, PriceVersion, RateCard


@dataclass(frozen=True)
class PriceCorrection:
    """Other prices in [valid_from, valid_until): by accelerator and resource, and by model and token class."""

    name: str
    valid_from: datetime
    valid_until: datetime
    gpu: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    tokens: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)

    def covers(self, instant: datetime) -> bool:
        return self.valid_from <= instant < self.valid_until

    def over(self, version: PriceVersion) -> PriceVersion:
        """Return the version under the name that lines of a corrected price carry."""
        return replace(version, name=f"{version.name}+{self.name}")


class CorrectedRateCard(RateCard):
    """A rate card under corrections; a later correction overrides an earlier one."""

    def __init__(self, versions: Iterable[PriceVersion], corrections: Sequence[PriceCorrection]) -> None:
        super().__init__(versions)
        # latest first: the first match counts
        self.corrections = list(reversed(corrections))
        self._gpu_found: dict[tuple[str, str, datetime], tuple[PriceVersion, GpuPrice]] = {}
        self._token_found: dict[tuple[str, str, datetime], tuple[PriceVersion, Decimal]] = {}

    def changes(self) -> set[datetime]:
        """Return every instant at which a price begins or ends."""
        bounds = {at for item in self.corrections for at in (item.valid_from, item.valid_until)}
        return super().changes() | bounds

    def gpu_price(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        """Return the published price, unless a correction replaces exactly that entry.  Raises UnpricedError.

        Prices are cached: a month looks up a handful of them, tens of thousands of times.
        """
        asked = (accelerator, resource, instant)
        if asked not in self._gpu_found:
            self._gpu_found[asked] = self._find_gpu(*asked)
        return self._gpu_found[asked]

    def _find_gpu(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        version, price = super().gpu_price(accelerator, resource, instant)
        for item in self.corrections:
            # by the entry that was found, not by the names that were asked for: a list may price a resource anywhere
            corrected = item.gpu.get((price.accelerator, price.resource)) if item.covers(instant) else None
            if corrected is not None:
                return item.over(version), replace(price, price=corrected)
        return version, price

    def token_price(self, model: str, token_class: str, instant: datetime) -> tuple[PriceVersion, Decimal]:
        """Return the published price, unless a correction replaces exactly that entry.  Raises UnpricedError."""
        asked = (model, token_class, instant)
        if asked not in self._token_found:
            self._token_found[asked] = self._find_tokens(*asked)
        return self._token_found[asked]

    def _find_tokens(self, model: str, token_class: str, instant: datetime) -> tuple[PriceVersion, Decimal]:
        version, price = super().token_price(model, token_class, instant)
        for item in self.corrections:
            corrected = item.tokens.get((model, token_class)) if item.covers(instant) else None
            if corrected is not None:
                return item.over(version), corrected
        return version, price


class CorrectedOwnershipBook(OwnershipBook):
    """Owners under corrections; later corrections override earlier ones, and any of them the patterns of the book below."""

    def __init__(self, below: OwnershipBook, corrections: Sequence[OwnershipRow]) -> None:
        super().__init__(())
        self._below = below
        self._corrections = list(reversed(corrections))
        self._found: dict[tuple[str, str, datetime], Owner | None] = {}

    def owner(self, scope: str, name: str, instant: datetime) -> Owner | None:
        """Return the owner at `instant`, or None if unowned; cached, since every job of a namespace looks it up."""
        asked = (scope, name, instant)
        if asked not in self._found:
            self._found[asked] = self._find(*asked)
        return self._found[asked]

    def _find(self, scope: str, name: str, instant: datetime) -> Owner | None:
        for row in self._corrections:
            if row.covers(instant) and row.names(scope, name):
                return row.owner
        return self._below.owner(scope, name, instant)

    def teams(self, scope: str, name: str) -> set[str]:
        """Return every team that may own (scope, name) at some instant."""
        corrected = {row.owner.team for row in self._corrections if row.names(scope, name)}
        return self._below.teams(scope, name) | corrected

    def changes(self) -> set[datetime]:
        """Return every instant at which an ownership begins or ends."""
        bounds = {at for row in self._corrections for at in (row.valid_from, row.valid_until) if at is not None}
        return self._below.changes() | bounds
