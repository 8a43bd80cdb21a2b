"""PURE: prices and owners with later corrections laid over them.

The facts below stay as they were published; a correction says for a stretch of closed time what should have been.
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
        """The version under the name that lines of a corrected price carry."""
        return replace(version, name=f"{version.name}+{self.name}")


class CorrectedRateCard(RateCard):
    """A rate card under corrections, the later ones on top."""

    def __init__(self, versions: Iterable[PriceVersion], corrections: Sequence[PriceCorrection]) -> None:
        super().__init__(versions)
        self.corrections = list(reversed(corrections))
        self._gpu_found: dict[tuple[str, str, datetime], tuple[PriceVersion, GpuPrice]] = {}
        self._token_found: dict[tuple[str, str, datetime], tuple[PriceVersion, Decimal]] = {}

    def changes(self) -> set[datetime]:
        """Every instant at which another price begins or one ends."""
        bounds = {at for item in self.corrections for at in (item.valid_from, item.valid_until)}
        return super().changes() | bounds

    def gpu_price(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        """As in the published list, unless a correction names that very price.  Raises UnpricedError.

        Each is found once: a month asks for a handful of prices, tens of thousands of times.
        """
        asked = (accelerator, resource, instant)
        if asked not in self._gpu_found:
            self._gpu_found[asked] = self._find_gpu(*asked)
        return self._gpu_found[asked]

    def _find_gpu(self, accelerator: str, resource: str, instant: datetime) -> tuple[PriceVersion, GpuPrice]:
        version, price = super().gpu_price(accelerator, resource, instant)
        for item in self.corrections:
            corrected = item.gpu.get((price.accelerator, price.resource)) if item.covers(instant) else None
            if corrected is not None:
                return item.over(version), replace(price, price=corrected)
        return version, price

    def token_price(self, model: str, token_class: str, instant: datetime) -> tuple[PriceVersion, Decimal]:
        """As in the published list, unless a correction names that very price.  Raises UnpricedError."""
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
    """Owners under corrections, the later ones on top; a correction goes before any pattern below it."""

    def __init__(self, below: OwnershipBook, corrections: Sequence[OwnershipRow]) -> None:
        super().__init__(())
        self._below = below
        self._corrections = list(reversed(corrections))
        self._found: dict[tuple[str, str, datetime], Owner | None] = {}

    def owner(self, scope: str, name: str, instant: datetime) -> Owner | None:
        """The owner at `instant`, or None where nobody owns it; found once, since every job of a namespace asks."""
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
        """Every team that may own (scope, name) at some instant."""
        corrected = {row.owner.team for row in self._corrections if row.names(scope, name)}
        return self._below.teams(scope, name) | corrected

    def changes(self) -> set[datetime]:
        """Every instant at which some ownership begins or ends."""
        bounds = {at for row in self._corrections for at in (row.valid_from, row.valid_until) if at is not None}
        return self._below.changes() | bounds
