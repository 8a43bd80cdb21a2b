"""PURE: token records as rows of the ledger: as arguments of `token_take`, and as what a stored row says.

Counts are stored in 32 bits each, those of output and reasoning in 16. A record that has a larger one keeps all five in
`rest`, with -1 in their places; the view `token_event` gives the same 64-bit counts for both.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from billing.usage.services.token_columns import LARGEST_INT, LARGEST_SHORT
from metering.records import Content, Counts, Dimension, TokenUsage
from metering.token_keys import is_masked

_json = msgspec.json.Encoder(order="deterministic").encode


def is_narrow(records: Iterable[TokenUsage]) -> bool:
    """Whether every count fits its column; only input and output need to be looked at, which contain the others."""
    return all(record.input_tokens <= LARGEST_INT and record.output_tokens <= LARGEST_SHORT for record in records)


def narrow_columns(keys: Iterable[bytes], records: Sequence[TokenUsage], dimensions: Sequence[int]) -> list[bytes]:
    """Arguments of `token_take`: a column each as PostgreSQL writes an array, all counts narrow."""
    counts = zip(*(record.counts for record in records), strict=True)
    return [
        _array([key.hex() for key in keys]),
        _array([record.time.isoformat() for record in records]),
        _array(map(str, dimensions)),
        *(_array(map(str, column)) for column in counts),
        _texts(["" if is_masked(record.id) else record.id for record in records]),
        _texts([f'{{"attributes":{_json(record.attributes).decode()}}}' if record.attributes else "" for record in records]),
    ]


def _array(items: Iterable[str]) -> bytes:
    return f"{{{','.join(items)}}}".encode()


def _texts(items: Sequence[str]) -> bytes:
    if not any(items):
        return _array(['""'] * len(items))
    return _array('"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items)


class _Rest(msgspec.Struct):
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    counts: Counts | None = None


def content_of_row(row: Sequence[Any], dimension: Dimension, *, dated: bool) -> Content:
    """The content that a stored row has, as `TokenUsage.content` gives it: (time, rest, 5 counts).

    The time is what PostgreSQL sends: microseconds since 2000 in 8 bytes.
    """
    time, rest, *counts = row
    kept = msgspec.json.decode(rest, type=_Rest) if rest else _Rest()
    first, second, third, fourth, fifth = kept.counts or counts
    attributes = bytes(kept.attributes)
    return (
        int.from_bytes(time, "big", signed=True) if dated else None, dimension, (first, second, third, fourth, fifth),
        b"" if attributes == b"null" else attributes,
    )  # fmt: skip
