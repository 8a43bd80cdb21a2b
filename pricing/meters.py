"""PURE: meters and the kinds of invoice line that bill them, as data.

Another meter (storage, egress, requests) is a row of METERS and one of LINE_KINDS, beside its price in the rate card and
its usage source. Code that depends on the meter of a line asks its row; no code compares names of kinds.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from pricing.rate_card import GPU_HOURS, MILLION_TOKENS, SLICE_HOURS

MICROSECONDS_PER_HOUR: Final = 3_600_000_000


class Meter(msgspec.Struct, frozen=True):
    """Meter of a resource that is counted exactly and priced per unit.

    `base_unit`: the unit of counts, integers or exact decimals; `units`: each pricing unit with the base units in one.
    """

    name: str
    base_unit: str
    units: Mapping[str, int]


GPU_TIME: Final = Meter(
    "gpu", "device-microseconds", {GPU_HOURS: MICROSECONDS_PER_HOUR, SLICE_HOURS: MICROSECONDS_PER_HOUR}
)
TOKENS: Final = Meter("tokens", "tokens", {MILLION_TOKENS: 1_000_000})
METERS: Final = {meter.name: meter for meter in (GPU_TIME, TOKENS)}


class Role(Enum):
    """Role of a line: charge usage, adjust the price of usage, split a cost among teams, or give back an amount."""

    USAGE = "usage"
    ADJUSTMENT = "adjustment"
    ALLOCATED = "allocated"
    CREDIT = "credit"


class Explanation(Enum):
    """Evidence for a line beside usage and price: verdicts on jobs, ends of allocations, or the time of a pool."""

    VERDICTS = "verdicts"
    ENDS = "ends"
    POOL = "pool"


class LineKind(msgspec.Struct, frozen=True):
    """Kind of line. `order`: its place on an invoice; `bought`: paid for ahead; `on_demand`: at the list price of the day;
    `takes_energy`: its usage carries the energy of the devices. `part`: section of the total, where not its own name.
    """

    name: str
    order: int
    role: Role
    meter: Meter | None = None
    explained_by: Explanation | None = None
    on_demand: bool = False
    bought: bool = False
    takes_energy: bool = False
    part: str = ""

    @property
    def section(self) -> str:
        """Return the section of the total; several kinds may share one."""
        return self.part or self.name


LINE_KINDS: Final = {
    kind.name: kind
    for kind in (
        LineKind("gpu", 0, Role.USAGE, GPU_TIME, on_demand=True, takes_energy=True),
        LineKind("commitment", 1, Role.USAGE, GPU_TIME, bought=True, takes_energy=True, part="gpu"),
        LineKind("tokens", 2, Role.USAGE, TOKENS, on_demand=True),
        LineKind("efficiency", 3, Role.ADJUSTMENT, GPU_TIME, Explanation.VERDICTS, part="adjustments"),
        LineKind("interruption", 4, Role.ADJUSTMENT, GPU_TIME, Explanation.ENDS, part="adjustments"),
        LineKind("idle", 5, Role.ALLOCATED, None, Explanation.POOL),
        LineKind("shared", 6, Role.ALLOCATED),
        LineKind("credit", 7, Role.CREDIT, part="adjustments"),
    )
}
"""Kinds of lines in the order of an invoice."""
SECTIONS: Final = tuple(dict.fromkeys(kind.section for kind in LINE_KINDS.values()))
"""Sections of a total in the order of an invoice. Every kind is in one, so that they add up to the total."""
ALWAYS_SHOWN: Final = ("gpu", "tokens", "adjustments")
"""Sections that pages show in every month; others only where something was billed in them."""


def line_kind(name: str) -> LineKind:
    """Return the row of a kind.  Raises KeyError for an unknown name.

    >>> line_kind("tokens").meter.name, line_kind("idle").role
    ('tokens', <Role.ALLOCATED: 'allocated'>)
    """
    return LINE_KINDS[name]


class OfKind:
    """Mixin with properties that follow from the kind and the SKU of a line."""

    __slots__ = ()
    kind: str
    sku: str

    @property
    def what(self) -> LineKind:
        """Return the row of the kind in LINE_KINDS."""
        return line_kind(self.kind)

    @property
    def counts_tokens(self) -> bool:
        """Return True if the kind counts tokens."""
        return self.what.meter is TOKENS

    @property
    def model(self) -> str:
        """Return the model of the tokens, "" where the kind counts none."""
        return self.sku if self.counts_tokens else ""

    @property
    def device(self) -> str:
        """Return the SKU of a kind that counts no tokens: a device, a slice or a shared cost; "" for tokens."""
        return "" if self.counts_tokens else self.sku
