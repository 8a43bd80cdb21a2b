"""PURE: parts of JSON text that no decoder reads, byte for byte, and keys that occur twice.

A decoder refuses a whole body for one unreadable record. `array_items` and `object_members` split such a body by its quotes
and brackets alone, so that each record is decoded, and refused, separately.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
MOST_MARKS: Final = 2_000_000
"""Most strings, brackets and commas that are scanned in a body that no decoder reads: about a second of work."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_MARKS: Final = re.compile(_STRING + rb'|[][{},"]', re.DOTALL)
_DEPTH: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_MEMBER: Final = re.compile(rb"\s*(" + _STRING + rb")\s*:", re.DOTALL)


class UnreadableJSONError(ValueError):
    """Text whose brackets and quotes do not match, or that has too many of them."""


def without_mark(text: bytes) -> bytes:
    """Return the text without the byte order mark that some programs write before UTF-8."""
    return text.removeprefix(BYTE_ORDER_MARK)


def array_items(text: bytes) -> list[bytes]:
    """Return the items of an array, each as it is written; items need not be JSON.  Raises UnreadableJSONError.

    >>> array_items(b'[{"a": NaN}, [1, "],"], tru]')
    [b'{"a": NaN}', b'[1, "],"]', b'tru']
    """
    return list(_parts(text.strip(), b"[]"))


def object_members(text: bytes) -> list[tuple[str, bytes]]:
    """Return names and values of an object in the order in which they are written.  Raises UnreadableJSONError.

    >>> object_members(b'{"a": [NaN], "b": 1, "a": 2}')
    [('a', b'[NaN]'), ('b', b'1'), ('a', b'2')]
    """
    members = []
    for part in _parts(text.strip(), b"{}"):
        name = _MEMBER.match(part)
        if name is None:
            raise UnreadableJSONError("a member of the object has no name")
        members.append((str(json.loads(name[1].decode(errors="replace"), strict=False)), part[name.end() :].strip()))
    return members


def readable_members(text: bytes) -> list[tuple[str, Any]]:
    """Return the members of an object whose values can be read, whatever else is wrong; none of a text that is no object.

    >>> readable_members(b'{"id": "a", "count": 01, "cost": Infinity}')
    [('id', 'a'), ('cost', inf)]
    """
    found = []
    try:
        for name, value in object_members(text):
            try:
                found.append((name, tolerant(value)))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    except UnreadableJSONError:
        return []
    return found


def _parts(text: bytes, brackets: bytes) -> Iterator[bytes]:
    """Yield the texts between the commas of the outermost brackets; none if there are only blanks."""
    if text[:1] != brackets[:1] or text[-1:] != brackets[1:]:
        raise UnreadableJSONError(f"the text is not between {brackets.decode()}")
    depth, start, end = 0, 1, 0
    for number, mark in enumerate(_MARKS.finditer(text)):
        octet = text[mark.start()]
        # A quote matches alone only if its string never ends.
        if number > MOST_MARKS or mark[0] == b'"' or end:
            raise UnreadableJSONError("brackets and quotes do not match, or there are too many")
        depth += _DEPTH.get(octet, 0)
        if depth == 0:
            end = mark.start()
        if depth == 0 or (depth == 1 and octet == ord(",")):
            part = text[start : mark.start()].strip()
            if part:
                yield part
            elif depth or start > 1:
                raise UnreadableJSONError("there is nothing between two commas")
            start = mark.end()
    if not end:
        raise UnreadableJSONError("a bracket is never closed")


def repeated_key(text: bytes) -> str | None:
    """Return a key that occurs twice in one object of a JSON text; None if each occurs once, or if the text is unreadable.

    A decoded object has each key once: encoded again it has as many quotes as before unless a repeated key was lost.

    >>> repeated_key(b'{"a": 1, "b": {"a": 2}}'), repeated_key(b'{"a": {"b": 1, "b": 1}}')
    (None, 'b')
    """
    try:
        # An escaped quote is encoded again as a backslash and a quote, which would change the number of quotes.
        if rb"\u0022" not in text and msgspec.json.encode(msgspec.json.decode(text)).count(b'"') == text.count(b'"'):
            return None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    repeated: list[str] = []

    def note(members: list[tuple[str, Any]]) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for name, value in members:
            if name in known:
                repeated.append(name)
            known[name] = value
        return known

    try:
        # parse_int=float: Python refuses integers of more than 4300 digits, which would hide a repeated key.
        json.loads(text.decode(errors="replace"), object_pairs_hook=note, parse_int=float)
    except (ValueError, RecursionError):
        return None
    return min(repeated, default=None)


def tolerant(text: bytes) -> Any:
    """Decode a JSON text, also one with NaN, Infinity or half a surrogate pair, as Python and others write it.

    Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for text that neither decoder reads.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        try:
            return json.loads(text.decode())
        except ValueError:
            pass
        raise
