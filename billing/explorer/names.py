"""PURE: names of a dimension: those of a month with their codes, and those of several months as one list.

A year has millions of job names, so they are compared by stored 64-bit hashes. Names of one hash are compared before they
count as one: two names that share a hash cost time, and change no sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[Any]
HASH: Final = np.dtype("<u8")
SIEVED_BITS: Final = 20
SIEVED: Final = np.uint64((1 << SIEVED_BITS) - 1)


@dataclass(frozen=True)
class Coded:
    """Names of a month as an Arrow array, their hashes, and the index of the name of each item."""

    texts: Any
    hashes: Integers
    codes: Integers

    @classmethod
    def of(cls, names: Sequence[str], codes: Integers) -> "Coded":
        """Build from names, hashing them."""
        return cls(pa.array(names, pa.string()), hashes_of(names), codes)

    @cached_property
    def names(self) -> list[str]:
        found: list[str] = self.texts.to_pylist()
        return found

    def of_items(self, items: Integers) -> list[str]:
        """Return the names of some items."""
        found: list[str] = self.texts.take(pa.array(self.codes[items])).to_pylist()
        return found

    def among(self, wanted: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the items that have one of the names."""
        met: npt.NDArray[np.bool_] = _flags(pc.is_in(self.texts, value_set=pa.array(sorted(wanted), pa.string())))
        return met[self.codes]

    def stored(self) -> tuple[bytes, bytes, bytes]:
        """Return the offsets of the names, their bytes, and the hashes."""
        encoded = [name.encode() for name in self.names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        return ends.tobytes(), b"".join(encoded), self.hashes.tobytes()

    @classmethod
    def restored(cls, stored: tuple[memoryview, memoryview, memoryview], codes: Integers) -> "Coded":
        ends, texts, hashes = stored
        values = np.frombuffer(hashes, HASH)
        return cls(pa.StringArray.from_buffers(values.size, pa.py_buffer(ends), pa.py_buffer(texts)), values, codes)


def hashes_of(names: Iterable[str]) -> Integers:
    return np.frombuffer(b"".join(blake2b(name.encode(), digest_size=HASH.itemsize).digest() for name in names), HASH)


def _flags(found: Any) -> Any:
    return found.to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Joined:
    """Names of a dimension in some months, one month after another, and the place of the name of each row.

    `hashes`: of each text.  `place`: for each text, the place of the first equal text.
    """

    texts: "Texts"
    hashes: Integers
    place: Integers
    codes: Integers

    @property
    def size(self) -> int:
        """Return the upper bound of all places."""
        return int(self.place.size)

    def places(self, names: Sequence[str]) -> Integers:
        """Return the places of names, -1 for unknown names."""
        wanted = pa.array(names, pa.string()).dictionary_encode()
        some = _with_hash(self.hashes, np.sort(hashes_of(wanted.dictionary.to_pylist())))
        met = pc.index_in(self.texts.at(some), value_set=wanted.dictionary)
        found = np.full(len(wanted.dictionary), -1, dtype=np.int64)
        found[met.drop_null().to_numpy()] = self.place[some[_flags(met.is_valid())]]
        return found[wanted.indices.to_numpy()]


@dataclass(frozen=True)
class Texts:
    """Texts of several months, one after another: copying them into one array takes longer than summing a year."""

    months: Sequence[Any]

    @property
    def whole(self) -> Any:
        """Return all texts as one array."""
        return pa.concat_arrays([pa.array([], pa.string()), *self.months])

    @cached_property
    def _starts(self) -> Integers:
        return np.cumsum([0, *(len(month) for month in self.months)])

    def at(self, places: Integers) -> Any:
        """Return the texts at some places, in that order."""
        month = np.searchsorted(self._starts, places, side="right") - 1
        order = np.argsort(month, kind="stable")
        back = np.empty(order.size, dtype=np.int64)
        back[order] = np.arange(order.size)
        parts = [
            self.months[one].take(pa.array(places[month == one] - self._starts[one])) for one in np.unique(month).tolist()
        ]
        return pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(back))


def joined(months: Sequence[tuple[Coded, Integers]]) -> Joined:
    """Join the names of some rows of months; each month is given as its names, and the code of each row."""
    texts, hashes, codes, start = [], [np.zeros(0, HASH)], [np.zeros(0, dtype=np.int64)], 0
    for column, own in months:
        some, place = _occurring(column, own)
        texts.append(some.texts)
        hashes.append(some.hashes)
        codes.append(place + start)
        start += some.hashes.size
    every, every_hash = Texts(texts), np.concatenate(hashes)
    place = _first_of_a_name(every, every_hash)
    return Joined(every, every_hash, place, place[np.concatenate(codes)])


def _occurring(column: Coded, codes: Integers) -> tuple[Coded, Integers]:
    """Return only the names that some rows have, if fewer than half, and the codes of the rows for them."""
    met = np.zeros(column.hashes.size, dtype=bool)
    met[codes] = True
    places = np.flatnonzero(met)
    if 2 * places.size > met.size:
        return column, codes.astype(np.int64)
    found = np.zeros(met.size, dtype=np.int64)
    found[places] = np.arange(places.size)
    return Coded(column.texts.take(pa.array(places)), column.hashes[places], places), found[codes]


def _first_of_a_name(texts: Texts, hashes: Integers) -> Integers:
    """Return for each text the place of the first equal text."""
    place, ordered = np.arange(hashes.size), np.sort(hashes)
    some = _with_hash(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
    _, first, one = np.unique(hashes[some], return_index=True, return_inverse=True)
    place[some] = some[first[one]]
    # equal hashes are equal names unless two names collide: then compare the texts of all months
    if _flags(pc.equal(texts.at(some), texts.at(place[some]))).all():
        return place
    names = texts.whole.dictionary_encode().indices.to_numpy()
    return np.unique(names, return_index=True)[1][names]


def _with_hash(hashes: Integers, wanted: Integers) -> Integers:
    """Return the places of hashes that are in `wanted`, which is sorted.

    A bitmap of the last bits excludes most hashes in a tenth of the time of a search for each.
    """
    if not wanted.size:
        return np.zeros(0, dtype=np.int64)
    bits = np.zeros(1 << SIEVED_BITS, dtype=bool)
    bits[wanted & SIEVED] = True
    some = np.flatnonzero(bits[hashes & SIEVED])
    nearest = np.minimum(np.searchsorted(wanted, hashes[some]), wanted.size - 1)
    return some[wanted[nearest] == hashes[some]]
