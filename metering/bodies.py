"""Bodies of the platform's doors cut in two, for a receiver that finds them too large."""

from typing import Final, TypeVar

import msgspec

OF_THE_WHOLE: Final = ("watermark", "watched_since", "unwatched", "filled")
LISTS: Final = ("allocations", "nodes", "records")
Item = TypeVar("Item")
_array = msgspec.json.Decoder(list[msgspec.Raw])
_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnsplittableError(Exception):
    """A body that holds one record, or none that this module knows how to find."""


def halves(body: bytes) -> tuple[bytes, bytes]:
    """The same records in the same order, in two bodies: JSON array, envelope with a list, or one record a line.

    A watermark, and what is said of the time before it, stays with the second half alone: it stands for both.

    Raises UnsplittableError.
    """
    text = body.strip()
    if text.startswith(b"["):
        first, second = _cut(_array.decode(text))
        return msgspec.json.encode(first), msgspec.json.encode(second)
    try:
        envelope = _envelope.decode(text)
    except msgspec.DecodeError:
        lines, rest = _cut(text.split(b"\n"))
        return b"\n".join(lines), b"\n".join(rest)
    field = next((name for name in LISTS if name in envelope), None)
    if field is None:
        raise UnsplittableError("the body is one record")
    first, second = _cut(_array.decode(envelope[field]))
    without_watermark = {name: value for name, value in envelope.items() if name not in OF_THE_WHOLE}
    return (
        msgspec.json.encode({**without_watermark, field: first}),
        msgspec.json.encode({**envelope, field: second}),
    )


def _cut(items: list[Item]) -> tuple[list[Item], list[Item]]:
    if len(items) < 2:
        raise UnsplittableError("the body holds a single record")
    middle = len(items) // 2
    return items[:middle], items[middle:]
