"""PURE: a token record as a row of the ledger: what it says, its binary form for COPY, what it adds to the roll-up.

Counts are stored in 32 bits each. A record that has a larger one keeps all five in `rest`, with -1 in their places; the
view `token_event` gives the same 64-bit counts for both.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from metering.records import Content, Counts, Dimension, TokenUsage, microseconds
from metering.token_keys import is_masked, token_key

HOUR_US: Final = 3_600_000_000
LARGEST_INT: Final = 2**31 - 1
NO_COUNTS: Final = (-1, -1, -1, -1, -1)
COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"
ENTRY_COLUMNS: Final = (
    "key, time, dimension, input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens,"
    " reasoning_output_tokens, epoch, id, rest"
)

_entry = Struct(">h" + "i16s" + "iq" + "ii" * 6 + "ih" + "i")  # each field behind its length; the last is that of the id
_plain_entry = Struct(_entry.format + "i")
_delta = Struct(">h" + "iq" + "ii" * 2 + "iq" * 6)
_length = Struct(">i")
_json = msgspec.json.Encoder(order="deterministic").encode


class Cell(NamedTuple):
    """A record of a batch, ready to be compared and stored. Times are microseconds since 2000."""

    key: bytes
    at: int
    dimension: Dimension
    counts: Counts
    attributes: bytes
    index: int
    record: TokenUsage


def cell(index: int, record: TokenUsage, at: int) -> Cell:
    """The record at its place in the batch, `at` being its time."""
    return Cell(
        token_key(record.source, record.id),
        at,
        record.dimension,
        record.counts,
        _json(record.attributes) if record.attributes else b"",
        index,
        record,
    )


def entry_row(entry: Cell, dimension: int, epoch: int) -> bytes:
    """The row of `token_entry` as COPY reads it in binary."""
    key, at, _, counts, attributes, _, record = entry
    identity = b"" if is_masked(record.id) else record.id.encode()
    rest = b'{"attributes":' + attributes + b"}" if attributes else b""
    if max(counts) > LARGEST_INT:
        rest, counts = _json({"attributes": msgspec.Raw(attributes or b"null"), "counts": counts}), NO_COUNTS
    first, second, third, fourth, fifth = counts
    if not identity and not rest:
        return _plain_entry.pack(
            11, 16, key, 8, at, 4, dimension, 4, first, 4, second, 4, third, 4, fourth, 4, fifth, 2, epoch, 0, 0
        )
    head = _entry.pack(
        11, 16, key, 8, at, 4, dimension, 4, first, 4, second, 4, third, 4, fourth, 4, fifth, 2, epoch, len(identity)
    )
    return head + identity + _length.pack(len(rest)) + rest


def is_narrow(entries: Iterable[Cell]) -> bool:
    """Whether every count fits its column."""
    return all(max(entry.counts) <= LARGEST_INT for entry in entries)


def narrow_columns(entries: Sequence[Cell], dimensions: Sequence[int]) -> tuple[Any, ...]:
    """Arguments of `token_take`: a column each, all counts narrow. Arrays of numbers as text, which costs least."""
    counts = zip(*(entry.counts for entry in entries), strict=True)
    return (
        _array(entry.key.hex() for entry in entries),
        _array(entry.record.time.isoformat() for entry in entries),
        _array(map(str, dimensions)),
        *(_array(map(str, column)) for column in counts),
        ["" if is_masked(entry.record.id) else entry.record.id for entry in entries],
        [f'{{"attributes":{entry.attributes.decode()}}}' if entry.attributes else "" for entry in entries],
    )


def _array(items: Iterable[str]) -> str:
    return f"{{{','.join(items)}}}"


class _Rest(msgspec.Struct):
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    counts: Counts | None = None


def content_of_row(row: Sequence[Any], dimension: Dimension, *, dated: bool) -> Content:
    """The content that a stored row (time, rest, 5 counts) has, as `TokenUsage.content` gives it."""
    time, rest, *counts = row
    kept = msgspec.json.decode(rest, type=_Rest) if rest else _Rest()
    first, second, third, fourth, fifth = kept.counts or counts
    attributes = bytes(kept.attributes)
    return (
        microseconds(time) if dated else None, dimension, (first, second, third, fourth, fifth),
        b"" if attributes == b"null" else attributes,
    )  # fmt: skip


def delta_row(hour: int, dimension: int, epoch: int, sums: Sequence[int]) -> bytes:
    """One row of `token_hour_delta`: requests and the five counts of an hour, counted in hours since 2000."""
    requests, first, second, third, fourth, fifth = sums
    return _delta.pack(
        9, 8, hour * HOUR_US, 4, dimension, 4, epoch, 8, requests, 8, first, 8, second, 8, third, 8, fourth, 8, fifth
    )
