"""Format of CloudEvents 1.0, as OpenMeter clients and LiteLLM's `openmeter` callback send them.

The subject is the consumer, `source` and `id` are the identity, the data has model and counts under the names that `naming`
has for the type. `time` may be missing, as the specification allows: then the time of arrival counts. The extension
`sequence`, if it is an integer, numbers the records of the source.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from metering.gateways.naming import Naming, data_usage, known_data, named_and_numbers, naming_of, tags_of_data
from metering.gateways.translation import Fields, required, text, usage_of
from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import MAX_SEQUENCE, TokenUsage, shown
from metering.request_tags import TagChoice
from metering.token_usage import refuse_unread

VERSION: Final = "1.0"
CONTEXT: Final = ("specversion", "type", "source", "id", "time", "subject", "sequence", "sequencerun")
DATA: Final = ("data", "data_base64")
PREFIX: Final = "ce-"


def redacted(
    event: Fields, *, namings: Mapping[str, Naming], tags: Mapping[str, Sequence[TagChoice]] = MappingProxyType({})
) -> Fields:
    """Return the event, reduced to its context, the named fields of its data, numbers that may be usage, and the tags chosen
    for its source, which may be extension attributes too.
    """
    kept = named_and_numbers({name: value for name, value in event.items() if name not in DATA}, CONTEXT)
    given = _data(event)
    data = known_data(given, naming_of(kept.get("type"), namings))
    found = kept if data is None else {**kept, "data": data}
    choices = tags.get(kept["source"], ()) if isinstance(kept.get("source"), str) else ()
    extensions = {name: value for name, value in event.items() if name not in (*CONTEXT, *DATA)}
    chosen = tags_of_data(given, extensions, choices) if choices else {}
    return {**found, "tags": chosen} if chosen else found


def usage(event: Fields, *, namings: Mapping[str, Naming], now: datetime) -> TokenUsage:
    """Return the usage that a redacted event reports.  Raises RecordError."""
    if event.get("specversion") != VERSION:
        raise RecordError(Message(
            "specversion must be %(version)s, not %(value)s", value=shown(event.get("specversion")), version=repr(VERSION)
        ), "specversion")
    kind = required(event, "type")
    identity = {"id": required(event, "id"), "source": required(event, "source")}
    consumer = required(event, "subject")
    counted = data_usage(event.get("data"), naming_of(kind, namings))
    refuse_unread({name: value for name, value in event.items() if name not in (*DATA, "tags")}, known=CONTEXT)
    dated = {"time": event.get("time"), "consumer": consumer, "tags": event.get("tags")}
    return usage_of({**identity, **dated, **counted, **_numbered(event)}, now=now)


def _numbered(event: Fields) -> Fields:
    """Return the source's number of the event (extension `sequence`, integers as digits; `sequencerun` is ours).

    The extension may also be any sortable text: such a text shows no gap and is ignored.
    """
    number = event.get("sequence")
    if isinstance(number, bool) or not isinstance(number, str | int):
        return {}
    digits = str(number)
    if not (digits.isascii() and digits.isdigit() and int(digits) <= MAX_SEQUENCE):
        return {}
    return {"sequence": int(digits), "sequence_run": text(event, "sequencerun")}


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return True if the headers hold the context of an event, whose body then is its data."""
    return any(name.lower() == f"{PREFIX}specversion" for name in headers)


def of_binary(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a binary request's event in structured form; a body that is not JSON leaves it without data.

    >>> of_binary({"Ce-Id": "r%201", "Ce-Type": "t", "Accept": "*/*"}, b'{"model": "m"}')
    b'{"id":"r 1","type":"t","data":{"model":"m"}}'
    """
    event: Fields = {
        name.lower().removeprefix(PREFIX): unquote(value.strip().strip('"'))
        for name, value in headers.items()
        if name.lower().startswith(PREFIX)
    }
    # A header `Ce-Data` is no attribute of the context, and must not replace the body.
    event.pop("data", None)
    try:
        return msgspec.json.encode({**event, "data": msgspec.json.decode(body)})
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return msgspec.json.encode(event)


def _data(event: Fields) -> Any:
    """Return the data, also if a client packed its JSON as base64."""
    packed = event.get("data_base64")
    if "data" in event or not isinstance(packed, str):
        return event.get("data")
    try:
        return msgspec.json.decode(b64decode(packed, validate=True))
    except (msgspec.DecodeError, UnicodeError, RecursionError, Base64Error, ValueError):
        return None
