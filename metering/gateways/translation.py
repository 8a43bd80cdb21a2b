"""Translation of a gateway's bytes to `TokenUsage`, record by record: decode, reduce to known fields, interpret.

The reduction comes before the interpretation. A record that cannot be interpreted is quarantined in its reduced form, and an
error can only show what is left of it; a record that cannot even be decoded is kept as its length and hash.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec

from metering.messages import Message
from metering.raw_json import tolerant
from metering.record_checks import RecordError
from metering.records import (
    MAX_COUNT,
    Content,
    Rejected,
    TokenUsage,
    check_record,
    from_row,
    record_error,
    shown,
)

MAX_KEPT_TEXT: Final = 512
"""Longest text that survives the reduction; identifiers and names are shorter, prompts mostly are not."""

CLIENT_LEFT: Final = 499
Fields = dict[str, Any]


class UndatedUsage(TokenUsage, frozen=True, forbid_unknown_fields=True, gc=False):
    """Usage without a time from its sender: `time` is its first arrival.

    A second sending arrives at another time and must still be a duplicate, so the time is no part of the content. The ledger
    needs no lookup for that: the first record of a key stays, with its own time.
    """

    @property
    def content(self) -> Content:
        """Return the content without the time."""
        return (None, *super().content[1:])


class Translated(msgspec.Struct, frozen=True):
    """Result of translating one body: (index, record, redacted bytes) of valid records, and rejected ones."""

    records: list[tuple[int, TokenUsage, bytes]]
    rejected: list[Rejected]


def translate(
    raws: Sequence[bytes | msgspec.Raw], redacted: Callable[[Fields], Fields], usage: Callable[[Fields], TokenUsage]
) -> Translated:
    """Translate one by one, so that a bad record never costs its neighbours; `usage` sees only what `redacted` left."""
    translated = Translated([], [])
    for index, raw in enumerate(raws):
        # Until the reduction has succeeded, quarantine may keep no more than length and hash.
        kept = unreadable(bytes(raw))
        try:
            fields = redacted(_object(raw))
            kept = _kept(fields)
            record = usage(fields)
            check_record(record, bytes(raw))
            translated.records.append((index, record, kept))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, RecordError) as error:
            translated.rejected.append(Rejected(index, kept, record_error(error)))
    return translated


def unreadable(raw: bytes) -> bytes:
    """Return what quarantine keeps of an undecodable record: length and hash identify it and reveal nothing."""
    digest = blake2b(raw, digest_size=16).hexdigest()
    return msgspec.json.encode({"unreadable": {"bytes": len(raw), "blake2b": digest}})


def scalars(fields: Mapping[str, Any], names: Sequence[str]) -> Fields:
    """Return the named fields that hold numbers, flags or short texts; drop all others."""
    return {name: fields[name] for name in names if name in fields and _is_short(fields[name])}


def usage_of(fields: Fields, *, now: datetime) -> TokenUsage:
    """Return the record of these fields; without a `time` it is dated `now` and marked so.  Raises RecordError."""
    time = fields.get("time")
    if time is not None:
        if not isinstance(time, str):
            raise RecordError(Message(
                "time must be an RFC 3339 instant with an offset, not %(value)s", value=shown(time)
            ), "time")
        return from_row(TokenUsage, fields)
    attributes = {**(fields.get("attributes") or {}), "time": "arrival"}
    return from_row(UndatedUsage, {**fields, "time": now, "attributes": attributes})


def failed(status: str | None) -> bool:
    """Return True if a status means that the request was refused or failed; a client that left (499) may have used tokens.

    >>> [failed(status) for status in ("200", "429", "503", "499", "0", "failure", None)]
    [False, True, True, False, False, True, False]
    """
    if status is None or not status.isdigit():
        return status == "failure"
    return int(status) >= 400 and int(status) != CLIENT_LEFT


def whole(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a count given as a number or as digits, None if absent or null.  Raises RecordError for anything else."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise RecordError(Message(
            "%(name)s must be a whole number from 0 to %(most)s, not %(value)s",
            name=name, value=shown(fields.get(name)), most=MAX_COUNT,
        ), name)
    return value


def text(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a text that is not empty, or None; a number counts as its digits.  Raises RecordError for anything else."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RecordError(Message("%(name)s must be a text, not %(value)s", name=name, value=shown(value)), name)
    if any("\ud800" <= character <= "\udfff" for character in str(value)):
        raise RecordError(Message("%(name)s contains half a character", name=name), name)
    return str(value)


def required(fields: Mapping[str, Any], name: str) -> str:
    """Return a text that must be there.  Raises RecordError."""
    value = text(fields, name)
    if value is None:
        raise RecordError(Message(
            "%(name)s is missing, empty or longer than %(most)s characters", name=name, most=MAX_KEPT_TEXT
        ), name)
    return value


def from_epoch(seconds: float, name: str) -> str:
    """Return the instant of so many seconds since 1970, in RFC 3339.  Raises RecordError.

    >>> from_epoch(1795209030.350369, "startTime")
    '2026-11-20T21:10:30.350369+00:00'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        raise RecordError(Message(
            "%(name)s is no time in seconds since 1970: %(value)s", name=name, value=seconds
        ), name) from None


def _kept(fields: Fields) -> bytes:
    """Encode the fields for quarantine; half of a surrogate pair stays an escape."""
    try:
        return msgspec.json.encode(fields)
    except UnicodeEncodeError:
        return json.dumps(fields).encode()


def _object(raw: bytes | msgspec.Raw) -> Fields:
    """Decode a JSON object, also with NaN or half a surrogate pair, which mostly are in dropped content."""
    fields = tolerant(bytes(raw))
    if not isinstance(fields, dict):
        raise RecordError(Message("a record must be a JSON object"))
    return fields


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_KEPT_TEXT)
