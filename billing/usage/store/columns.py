"""PURE: many token records as columns of numbers, sorted by key, and their binary form for COPY.

Handling each record in Python costs several times what the database needs to store it; handling a column at a time costs
a fraction of that. All numbers stay integers. `rows` has the same for a few records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.store.checks import are_ids, are_texts, details_are_named, is_named
from metering.record_checks import EARLIEST, LATEST, WIDEST_OFFSET, RecordError
from metering.records import NO_DETAILS, Dimension, UncheckedTokenUsage, stated_details
from metering.token_keys import UUID_LENGTH, source_mask, token_key
from pricing.meters import MICROSECONDS_PER_HOUR

DAY_US: Final = 24 * MICROSECONDS_PER_HOUR
LATEST_US: Final = (LATEST - EARLIEST).days * DAY_US
LARGEST_INT: Final = 2**31 - 1
LARGEST_SHORT: Final = 2**15 - 1
LARGEST: Final = np.array([LARGEST_INT] * 3 + [LARGEST_SHORT] * 2)
"""Largest count that fits each column of the ledger; output and reasoning counts have 16 bits."""
COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"
BEYOND_DIMENSIONS: Final = 2**32
NOT_KNOWN: Final = -1

Numbers = NDArray[np.int64]
Octets = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]
Identities = NDArray[np.int32]

_json = msgspec.json.Encoder(order="deterministic").encode
_ids = attrgetter("id")
_zones = attrgetter("time.tzinfo")
_attributes = attrgetter("attributes")
_runs = attrgetter("sequence_run")
_tags = attrgetter("tags")
_dimensions = attrgetter("source", "consumer", "model", "site", "provider", "status")
_counts = attrgetter(*TOKEN_COUNTS)
_since_2000 = tuple(attrgetter(name) for name in ("days", "seconds", "microseconds"))

HYPHENS: Final = (8, 13, 18, 23)
DIGITS: Final = np.array([place for place in range(UUID_LENGTH) if place not in HYPHENS])
VERSION, VARIANT = 12, 16
"""Positions of version and variant among the digits."""
_NO_DIGIT: Final = 255
_digit_of = np.full(256, _NO_DIGIT, np.uint8)
_digit_of[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _fields(columns: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    """Return the dtype fields of binary columns, each preceded by its length in bytes."""
    return [part for name, kind in columns for part in ((f"{name} length", ">i4"), (name, kind))]


def _template(columns: Sequence[tuple[str, str]], *more: tuple[str, str]) -> NDArray[np.void]:
    """Return a row with all constant values; `more` are the lengths of texts, which follow the columns."""
    row = np.zeros((), [("fields", ">i2"), *_fields(columns), *more])
    row["fields"] = len(columns) + len(more)
    for name, _ in columns:
        row[f"{name} length"] = row.dtype[name].itemsize
    return row


_narrow = [*((f"count {place}", ">i4") for place in range(3)), ("count 3", ">i2"), ("count 4", ">i2")]
_wide = [(f"count {place}", ">i8") for place in range(5)]
_ENTRY: Final = _template(
    [("key", "V16"), ("time", ">i8"), ("dimension", ">i4"), *_narrow, ("epoch", ">i2")], ("id", ">i4"), ("rest", ">i4")
)
_DELTA: Final = _template(
    [("hour", ">i8"), ("dimension", ">i4"), ("epoch", ">i4"), ("requests", ">i8"), *_wide]
)  # fmt: skip
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class DimensionNumbers:
    """Numbers of dimensions, valid on the timeline of the database from which they were read."""

    timeline: str
    ids: Mapping[Dimension, int]


@dataclass(frozen=True, slots=True)
class ReportedColumns:
    """Columns of reported records, in the order of the report.

    `keys`: (n, 16) bytes; `readable`: True if the id can be restored from the key; `times`: microseconds since 2000;
    `counts`: (n, 5); `dimensions`: their numbers, NOT_KNOWN if not cached. `bare`: True for records that fit the columns:
    the id can be restored, every count is narrow, and there are no attributes. `detailed`: True for records with one of
    `metering.records.DETAILS` or a tag. `timelines`: on which the numbers are valid; empty if none was cached.
    """

    records: Sequence[UncheckedTokenUsage]
    keys: Octets
    readable: Flags
    times: Numbers
    counts: Numbers
    dimensions: Identities
    bare: Flags
    detailed: Flags
    timelines: frozenset[str]

    def keep_the_rules(self) -> bool:
        """Return True if every record meets the rules between its fields that `TokenUsage` states."""
        uncached = self.counts[:, 0] - self.counts[:, 1] - self.counts[:, 2]
        zones = set(map(_zones, self.records))
        return bool(
            uncached.min() >= 0
            and (self.counts[:, 4] <= self.counts[:, 3]).all()
            and self.times.min() >= 0
            and self.times.max() < LATEST_US
            and all(zone is UTC or abs(zone.utcoffset(None)) <= WIDEST_OFFSET for zone in zones)
            and self._is_named()
            and self._has_good_details()
        )

    def _has_good_details(self) -> bool:
        try:
            for row in np.flatnonzero(self.detailed).tolist():
                self.records[row].check_parts()
                if not details_are_named(self.records[row]):
                    return False
        except RecordError:
            return False
        return True

    def _is_named(self) -> bool:
        """Return True if every name is valid; a dimension with a cached number was checked when it was first stored."""
        new = {self.records[row].dimension for row in np.flatnonzero(self.dimensions == NOT_KNOWN).tolist()}
        ids = [self.records[row].id for row in np.flatnonzero(~self.readable).tolist()]
        return are_ids(ids) and all(map(is_named, new)) and are_texts(set(map(_runs, self.records)))


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Columns of records sorted by key; records of one key stay in the order of their report.

    `place`: index in the report; `repeats`: True if the record before has the same key; other fields as in ReportedColumns.
    """

    records: Sequence[UncheckedTokenUsage]
    place: Rows
    keys: Octets
    readable: Flags
    repeats: Flags
    times: Numbers
    counts: Numbers
    dimensions: Identities
    bare: Flags
    detailed: Flags
    timelines: frozenset[str]

    def new_dimensions(self) -> list[Dimension]:
        """Return the dimensions without a cached number."""
        return list(set(self.names(self.rows_of_new_dimensions())))

    def rows_of_new_dimensions(self) -> Rows:
        """Return the rows whose dimension has no cached number."""
        return np.flatnonzero(self.dimensions == NOT_KNOWN)

    def names(self, rows: Rows) -> list[Dimension]:
        return [self.records[number].dimension for number in self.place[rows].tolist()]

    def repeated(self) -> list[tuple[int, int]]:
        """Return (index, index of the first record with the key) of each record whose key occurred before."""
        rows = np.flatnonzero(self.repeats)
        if not len(rows):
            return []
        first = np.maximum.accumulate(np.where(self.repeats, 0, np.arange(len(self.repeats))))
        return list(zip(self.place[rows].tolist(), self.place[first[rows]].tolist(), strict=True))

    def first_rows(self) -> Rows:
        return np.flatnonzero(~self.repeats)

    def hex_keys(self, rows: Rows) -> str:
        """Return the keys of these rows in hex, comma-separated."""
        return self.keys[rows].tobytes().hex(",", 16)

    def rows_by_key(self, rows: Rows) -> dict[bytes, int]:
        return dict(zip(self.keys[rows].view("V16").ravel().tolist(), rows.tolist(), strict=True))

    def are_as_stored(self, rows: Rows, times: Numbers, counts: Numbers) -> Flags:
        """Return flags of the rows that have these times and counts."""
        same: Flags = (self.times[rows] == times) & (self.counts[rows] == counts).all(axis=1)
        return same


def reported_columns(records: Sequence[UncheckedTokenUsage], known: DimensionNumbers) -> ReportedColumns:
    keys, readable = token_keys(records)
    counts = np.fromiter(chain.from_iterable(map(_counts, records)), np.int64, 5 * len(records)).reshape(-1, 5)
    dimensions = np.fromiter(map(known.ids.get, map(_dimensions, records), repeat(NOT_KNOWN)), np.int32, len(records))
    bare: Flags = readable & (counts <= LARGEST).all(axis=1)
    if any(map(_attributes, records)):
        bare &= ~np.fromiter(map(bool, map(_attributes, records)), np.bool_, len(records))
    stated = list(map(stated_details, records))
    detailed = np.zeros(len(records), np.bool_)
    if stated.count(NO_DETAILS) < len(stated):
        detailed[:] = [details != NO_DETAILS for details in stated]
    if any(map(_tags, records)):
        detailed |= np.fromiter(map(bool, map(_tags, records)), np.bool_, len(records))
    timelines = frozenset([known.timeline] if (dimensions != NOT_KNOWN).any() else [])
    return ReportedColumns(records, keys, readable, _times(records), counts, dimensions, bare, detailed, timelines)


def token_columns(parts: Sequence[ReportedColumns]) -> TokenColumns:
    """Return the columns of all records of at least one part, in order of their keys."""
    keys = _joined([part.keys for part in parts])
    order, repeats = _key_order(keys)
    return TokenColumns(
        [record for part in parts for record in part.records], order, keys[order],
        _joined([part.readable for part in parts])[order], repeats, _joined([part.times for part in parts])[order],
        _joined([part.counts for part in parts])[order], _joined([part.dimensions for part in parts])[order],
        _joined([part.bare for part in parts])[order], _joined([part.detailed for part in parts])[order],
        frozenset().union(*(part.timelines for part in parts)),
    )  # fmt: skip


def _key_order(keys: Octets) -> tuple[Rows, Flags]:
    """Return the sort order of the keys (equal ones keep their order), and flags of keys equal to the previous one."""
    halves = keys.view(">u8").astype(np.uint64)
    order = np.argsort(halves[:, 0])
    # equal first halves are rare: only then is the slower stable sort by both halves needed
    ordered = halves[order]
    if (ordered[1:, 0] == ordered[:-1, 0]).any():
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        ordered = halves[order]
    repeats = np.zeros(len(keys), np.bool_)
    repeats[1:] = (ordered[1:] == ordered[:-1]).all(axis=1)
    return order, repeats


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def token_keys(records: Sequence[UncheckedTokenUsage]) -> tuple[Octets, Flags]:
    """Return (n, 16) bytes, equal to `token_key`, and flags of UUIDs that can be restored from them."""
    identities = list(map(_ids, records))
    keys = np.zeros((len(records), 16), np.uint8)
    readable = np.zeros(len(records), np.bool_)
    as_long = [place for place, identity in enumerate(identities) if len(identity) == UUID_LENGTH]
    if as_long:
        text = "".join([identities[place] for place in as_long]).encode("ascii", "replace")
        octets, good = _uuids(np.frombuffer(text, np.uint8).reshape(-1, UUID_LENGTH))
        octets[:, 8:] ^= _masks([records[place].source for place in as_long])
        keys[as_long], readable[as_long] = octets, good
    for place in np.flatnonzero(~readable).tolist():
        key = token_key(records[place].source, identities[place])
        keys[place] = np.frombuffer(key, np.uint8)
    return keys, readable


def _masks(sources: Sequence[str]) -> Octets:
    """Return (n, 8) mask bytes, or (1, 8) if all records come from one source, as in most reports."""
    if len(set(sources)) == 1:
        return _mask(sources[0])
    return np.fromiter(map(source_mask, sources), ">u8", len(sources)).view(np.uint8).reshape(-1, 8)


@lru_cache(maxsize=4096)
def _mask(source: str) -> Octets:
    return np.frombuffer(source_mask(source).to_bytes(8, "big"), np.uint8).reshape(1, 8)


def _uuids(letters: Octets) -> tuple[Octets, Flags]:
    """Convert (n, 36) letters to (n, 16) bytes, with flags of UUIDs of version 4 or 7, as in `metering.token_keys`."""
    digits = _digit_of[letters[:, DIGITS]]
    good = (digits != _NO_DIGIT).all(axis=1) & (letters[:, HYPHENS] == ord("-")).all(axis=1)
    version, variant = digits[:, VERSION], digits[:, VARIANT]
    good &= ((version == 4) | (version == 7)) & (variant >= 8) & (variant <= 11)
    octets: Octets = np.ascontiguousarray((digits[:, 0::2] << 4) | (digits[:, 1::2] & 15))
    return octets, good


def _times(records: Sequence[UncheckedTokenUsage]) -> Numbers:
    since = [record.time - EARLIEST for record in records]
    days, seconds, rest = (np.fromiter(map(field, since), np.int64, len(since)) for field in _since_2000)
    return days * DAY_US + seconds * 1_000_000 + rest


def copied_entries(columns: TokenColumns, rows: Rows, dimensions: Identities, epoch: int) -> bytes:
    """Return these rows of `token_entry` in binary COPY format; `dimensions` are the ids of all rows."""
    table = np.full(len(rows), _ENTRY)
    table["key"] = columns.keys[rows].view("V16").ravel()
    table["time"], table["dimension"], table["epoch"] = columns.times[rows], dimensions[rows], epoch
    counts, more = columns.counts[rows], np.flatnonzero(~columns.bare[rows])
    wide: Flags = np.any(counts[more] > LARGEST, axis=1)
    counts[more[wide]] = -1
    for place in range(5):
        table[f"count {place}"] = counts[:, place]
    if not len(more):
        return COPY_HEADER + table.tobytes() + COPY_TRAILER
    found = record_texts(columns, rows[more], wide)
    identities, rests = zip(*found, strict=True)
    table["id"][more], table["rest"][more] = list(map(len, identities)), list(map(len, rests))
    texts = zip(more.tolist(), identities, rests, strict=True)
    return b"".join([COPY_HEADER, *_with_texts(memoryview(table.tobytes()), table.itemsize, texts), COPY_TRAILER])


def record_texts(columns: TokenColumns, rows: Rows, wide: Flags) -> list[tuple[bytes, bytes]]:
    """Return each row's id unless its key gives it, and the JSON of values without a column; `wide`: counts do not fit."""
    records = [columns.records[number] for number in columns.place[rows].tolist()]
    return [
        (b"" if readable else record.id.encode(), _rest(record, large))
        for record, readable, large in zip(records, columns.readable[rows].tolist(), wide.tolist(), strict=True)
    ]


def _with_texts(table: memoryview, size: int, texts: Iterable[tuple[int, bytes, bytes]]) -> Iterator[bytes | memoryview]:
    """Yield the rows of `table` with their two texts inserted, each after its length, the last two fields of a row."""
    at = 0
    for place, identity, rest in texts:
        end = (place + 1) * size
        yield from (table[at : end - _LENGTH_BYTES], identity, table[end - _LENGTH_BYTES : end], rest)
        at = end
    yield table[at:]


def _rest(record: UncheckedTokenUsage, wide: bool) -> bytes:
    """Return JSON of the values without a column: attributes, and all counts if one exceeds its column."""
    if wide:
        attributes = msgspec.Raw(_json(record.attributes) if record.attributes else b"null")
        return _json({"attributes": attributes, "counts": record.counts})
    return b'{"attributes":' + _json(record.attributes) + b"}" if record.attributes else b""


def copied_deltas(columns: TokenColumns, rows: Rows, dimensions: Identities, epoch: int) -> bytes:
    """Return the sums that these rows add per hour and dimension, in binary COPY format for `token_hour_delta`."""
    # hour and dimension as one integer: one sort groups by both
    group = columns.times[rows] // MICROSECONDS_PER_HOUR * BEYOND_DIMENSIONS + dimensions[rows]
    order = np.argsort(group, kind="stable")
    group = group[order]
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    counts = columns.counts[rows][order]
    if counts.max() > LARGEST_INT:
        counts = counts.astype(object)  # a sum beyond 64 bits must be refused, not wrap around
    sums = np.add.reduceat(counts, starts, axis=0)
    table = np.full(len(starts), _DELTA)
    table["hour"] = group[starts] // BEYOND_DIMENSIONS * MICROSECONDS_PER_HOUR
    table["dimension"], table["epoch"] = group[starts] % BEYOND_DIMENSIONS, epoch
    table["requests"] = np.diff(np.append(starts, len(rows)))
    for place in range(5):
        table[f"count {place}"] = sums[:, place]
    return COPY_HEADER + table.tobytes() + COPY_TRAILER


def dimension_ids(columns: TokenColumns, known: Mapping[Dimension, int]) -> Identities:
    """Return the numbers of the dimensions of all rows; `known` has the missing ones."""
    new = columns.rows_of_new_dimensions()
    if not len(new):
        return columns.dimensions
    ids = columns.dimensions.copy()
    ids[new] = [known[name] for name in columns.names(new)]
    return ids
