"""PURE: token records as rows of the ledger: arguments of `token_take`, and content of a stored row.

Counts are stored in 32 bits each, those of output and reasoning in 16. A record with a larger count keeps all five in
`rest`, with -1 in their columns; the view `token_event` gives the same 64-bit counts for both.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from struct import calcsize, pack
from typing import Any, Final

import msgspec

from billing.usage.store.columns import LARGEST_INT, LARGEST_SHORT
from metering.records import Content, Counts, Dimension, TokenUsage, microseconds
from metering.token_keys import is_masked

_json = msgspec.json.Encoder(order="deterministic").encode
_UUID, _TIMESTAMPTZ, _INTEGER, _TEXT = 2950, 1184, 23, 25
"""Type OIDs of PostgreSQL, which never change."""
_UUID_LENGTH: Final = pack(">i", 16)


def is_narrow(records: Iterable[TokenUsage]) -> bool:
    """Return True if every count fits its column; input and output are checked, which include the others."""
    return all(record.input_tokens <= LARGEST_INT and record.output_tokens <= LARGEST_SHORT for record in records)


def narrow_columns(
    keys: Collection[bytes], records: Sequence[TokenUsage], dimensions: Sequence[int], timeline: str
) -> list[bytes]:
    """Return the arguments of `token_take`: one binary PostgreSQL array per column, with narrow counts, and the timeline.

    The numbers of the dimensions are valid on that timeline only.
    """
    number = len(records)
    counts = zip(*(record.counts for record in records), strict=True)
    return [
        _head(_UUID, number) + b"".join([part for key in keys for part in (_UUID_LENGTH, key)]),
        _integers(_TIMESTAMPTZ, "q", [microseconds(record.time) for record in records]),
        _integers(_INTEGER, "i", dimensions),
        *(_integers(_INTEGER, "i", column) for column in counts),
        _texts(["" if is_masked(record.id) else record.id for record in records]),
        _texts([f'{{"attributes":{_json(record.attributes).decode()}}}' if record.attributes else "" for record in records]),
        timeline.encode(),
    ]


@lru_cache(maxsize=1024)
def _head(kind: int, number: int) -> bytes:
    """Return the header of a binary array: one dimension, no NULL, type, length, and lower bound 1."""
    return pack(">iiIii", 1, 0, kind, number, 1)


def _integers(kind: int, code: str, column: Sequence[int]) -> bytes:
    """Return a binary array of integers, each preceded by its length."""
    number = len(column)
    parts = [calcsize(f">{code}")] * (2 * number)
    parts[1::2] = column
    return _head(kind, number) + pack(">" + f"i{code}" * number, *parts)


def _texts(items: Sequence[str]) -> bytes:
    if not any(items):
        return _head(_TEXT, len(items)) + bytes(4 * len(items))
    written = [item.encode() for item in items]
    return _head(_TEXT, len(items)) + b"".join([part for item in written for part in (pack(">i", len(item)), item)])


class _Rest(msgspec.Struct):
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    counts: Counts | None = None


def content_of_row(row: Sequence[Any], dimension: Dimension, *, dated: bool) -> Content:
    """Return the content of a stored row in the form of `TokenUsage.content`: (time, rest, 5 counts).

    The time is as PostgreSQL sends it: microseconds since 2000 in 8 bytes.
    """
    time, rest, *counts = row
    kept = msgspec.json.decode(rest, type=_Rest) if rest else _Rest()
    first, second, third, fourth, fifth = kept.counts or counts
    attributes = bytes(kept.attributes)
    return (
        int.from_bytes(time, "big", signed=True) if dated else None, dimension, (first, second, third, fourth, fifth),
        b"" if attributes == b"null" else attributes,
    )  # fmt: skip
