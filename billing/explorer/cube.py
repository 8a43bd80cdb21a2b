"""PURE: sums of a month as columns: a table of lines, a table of workloads, and rows that refer to both.

A row is a part of a line: one local day of one workload. Amounts and quantities are in whole units of their last decimal
(cents, or yen), so that every sum of rows is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec
import numpy as np
import zstandard

from billing.explorer.names import Coded, Integers
from pricing.meters import METERS
from pricing.money import EXACT, amount_places

OF_A_LINE: Final = ("team", "kind", "cluster", "namespace", "consumer", "accelerator", "model", "priced")
"""Dimensions of a line. `priced`: the item of a price list, by `priced_name`; lines of one item are compared by price."""
OF_A_WORKLOAD: Final = ("job", "queue", "site", "pool", "tier")
FLAGS: Final = ("unit", "meter", "shadow", "lacks")
"""Flags of a line, as small numbers: the unit of its usage (0: none), its meter, whether it is showback, or charged for
another month (0: charged), and which of energy and CO2 it should have but does not (0: none)."""
UNIT: Final = {unit: number for number, unit in enumerate((one for meter in METERS.values() for one in meter.units), 1)}
METER: Final = {name: number for number, name in enumerate(METERS, 1)}
"""Numbers of units and of meters in the flags of a line."""
ONLY_SHOWN, OF_EARLIER = 1, 2
NO_CO2, NO_ENERGY = 1, 2
OF_A_ROW: Final = ("line", "workload", "day")
MEASURES: Final = ("amount", "quantity", "requests", "energy", "co2")
PLACES: Final = {"quantity": 6, "requests": 0, "energy": 3, "co2": 3}
"""Decimals of a unit of each measure but amounts."""
OF_ROWS, OF_PAIRS, OF_LINES = "", "pair_", "whole_"
"""Prefixes of columns of sums: of rows, of each pair of line and workload over the month, of lines."""
DIGEST: Final = 32
SMALLEST: Final = (np.uint8, np.uint16, np.uint32)


Column = Coded | Integers
Stored = tuple[tuple[memoryview, memoryview, memoryview] | None, str, memoryview]
BETWEEN: Final = "\x1f"


def priced_name(accelerator: str, sku: str, token_class: str, unit: str) -> str:
    """Join the key of a price list item into one text."""
    return BETWEEN.join((accelerator, sku, token_class, unit))


def priced_parts(name: str) -> tuple[str, str, str, str]:
    """Split `priced_name` into accelerator, SKU, token class and unit.

    >>> priced_parts(priced_name("NVIDIA-H800", "NVIDIA-H800", "", "GPU-hour"))
    ('NVIDIA-H800', 'NVIDIA-H800', '', 'GPU-hour')
    """
    accelerator, sku, token_class, unit = name.split(BETWEEN)
    return accelerator, sku, token_class, unit


def digest_of_note(note: int) -> str:
    """Return the pseudo-digest of the lines of a note: no hash begins with so many zeros.

    >>> note_of(digest_of_note(17)), note_of("ff" * DIGEST)
    (17, None)
    """
    return f"{note:0{2 * DIGEST}x}"


def note_of(digest: str) -> int | None:
    """Return the key of the note of a pseudo-digest; None for the digest of a line."""
    return int(digest, 16) if digest.startswith("0" * DIGEST) else None


class Names:
    """Codes of names in order of first use."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        return self._codes.setdefault(name, len(self._codes))

    @property
    def names(self) -> list[str]:
        return list(self._codes)


def coded(items: Iterable[str]) -> Coded:
    names = Names()
    codes = [names.code(item) for item in items]
    return Coded.of(names.names, small(np.array(codes, dtype=np.int64)))


def small(numbers: Integers) -> Integers:
    """Return numbers, none negative, in the smallest sufficient type."""
    most = int(numbers.max()) if numbers.size else 0
    return numbers.astype(next((kind for kind in SMALLEST if most <= np.iinfo(kind).max), np.int64))


def places_of(measure: str) -> int:
    """Return the decimals of a unit of a measure; amounts have those of the currency."""
    return amount_places() if measure == "amount" else PLACES[measure]


def whole_units(value: Decimal, measure: str) -> int:
    """Return a quantity in units of its last decimal.

    >>> whole_units(Decimal("12.34"), "amount"), whole_units(Decimal("-0.000001"), "quantity")
    (1234, -1)
    """
    return int(EXACT.scaleb(value, places_of(measure)))


def packed(column: Column) -> bytes:
    names, numbers = (column.stored(), column.codes) if isinstance(column, Coded) else (None, column)
    return zstandard.compress(msgspec.msgpack.encode((names, numbers.dtype.str, numbers.tobytes())))


def unpacked(content: bytes) -> Column:
    names, kind, numbers = msgspec.msgpack.decode(zstandard.decompress(content), type=Stored)
    values = np.frombuffer(numbers, dtype=np.dtype(kind))
    return values if names is None else Coded.restored(names, values)


@dataclass(frozen=True)
class Cube:
    """Columns of a month, as far as they were read."""

    columns: Mapping[str, Column]

    def names(self, name: str) -> Coded:
        column = self.columns[name]
        if not isinstance(column, Coded):
            raise TypeError(f"{name} has no names")
        return column

    def numbers(self, name: str) -> Integers:
        column = self.columns[name]
        if isinstance(column, Coded):
            raise TypeError(f"{name} has no numbers")
        return column

    def digest(self, line: int) -> str:
        return self.numbers("digest")[line * DIGEST : (line + 1) * DIGEST].tobytes().hex()


class Rows:
    """Builder of a cube."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in OF_A_LINE}
        self._flags: list[tuple[int, ...]] = []
        self._digests: list[bytes] = []
        self._workloads: dict[tuple[str, ...], int] = {}
        self._rows: list[tuple[int, ...]] = []

    def line(self, facts: Mapping[str, str], flags: tuple[int, ...], digest: str) -> int:
        """Begin a line, its flags in the order of FLAGS; return its number."""
        self._digests.append(bytes.fromhex(digest))
        for name in OF_A_LINE:
            self._lines[name].append(facts[name])
        self._flags.append(flags)
        return len(self._flags) - 1

    def row(self, line: int, workload: tuple[str, ...], day: int, measures: Sequence[int]) -> None:
        """Add a part of a line; the measures in the order of MEASURES."""
        self._rows.append((line, self._workloads.setdefault(workload, len(self._workloads)), day, *measures))

    @property
    def number(self) -> int:
        return len(self._rows)

    def columns(self) -> dict[str, Column]:
        table = np.array(self._rows, dtype=np.int64).reshape(len(self._rows), len(OF_A_ROW) + len(MEASURES))
        rows = dict(zip((*OF_A_ROW, *MEASURES), table.T, strict=True))
        lines = {name: coded(items) for name, items in self._lines.items()}
        workloads = {
            name: coded(item[place] for item in self._workloads) for place, name in enumerate(OF_A_WORKLOAD)
        }
        flags = np.array(self._flags, dtype=np.uint8).reshape(len(self._flags), len(FLAGS))
        return {
            **lines, **workloads, **{name: np.ascontiguousarray(flags[:, place]) for place, name in enumerate(FLAGS)},
            **{name: small(rows[name]) for name in OF_A_ROW},
            **{name: np.ascontiguousarray(rows[name]) for name in MEASURES},
            **_by_pair(rows, len(self._workloads)),
            **{f"{OF_LINES}{name}": _added(rows["line"], rows[name], len(self._flags)) for name in MEASURES},
            "digest": np.frombuffer(b"".join(self._digests), dtype=np.uint8),
        }  # fmt: skip


def _by_pair(rows: Mapping[str, Integers], workloads: int) -> dict[str, Column]:
    """Sum each pair of line and workload over the days."""
    # one number per pair of line and workload, split again by divmod
    pairs, place = np.unique(rows["line"] * max(1, workloads) + rows["workload"], return_inverse=True)
    line, workload = np.divmod(pairs, max(1, workloads))
    return {
        f"{OF_PAIRS}line": small(line), f"{OF_PAIRS}workload": small(workload),
        **{f"{OF_PAIRS}{name}": _added(place, rows[name], pairs.size) for name in MEASURES},
    }  # fmt: skip


def _added(place: Integers, values: Integers, number: int) -> Integers:
    sums = np.zeros(number, dtype=np.int64)
    np.add.at(sums, place, values)
    return sums
