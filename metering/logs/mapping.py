"""PURE: which field of a line of a gateway's log holds what, and the usage that the line tells.

A path is a name, names joined by dots, or several paths with `|` between them, of which the first that tells something
counts: `llm.model | model`. A name with dots in it (`gen_ai.request.model`) is found as it stands before it is taken apart,
and a text that holds a JSON object is looked into, for Higress writes JSON inside of JSON. What no path names is not read:
prompts and answers in a log go nowhere.

**Not told is not zero.** A request that failed (status from 400 up, or `failure`) without counts used nothing. Any other
that names a model and tells no counts, such as a stream whose client hung up, is `Incomplete`: it is reported without
counts, so that the platform keeps it in quarantine and the close shows it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from metering.gateways.translation import MAX_KEPT_TEXT, whole
from metering.records import RecordError, TokenUsage, from_row
from metering.token_usage import NOTHING, TokenClasses, token_classes

Fields = Mapping[str, Any]
NOT_TOLD: Final = frozenset({"", "-", "null"})
CLIENT_LEFT: Final = 499
UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Incomplete(msgspec.Struct, frozen=True):
    """A request of which the gateway does not tell what it used: the record as far as it is known, and what lacks."""

    fields: dict[str, Any]
    reason: str


Told = TokenUsage | Incomplete


class LineMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths to what a record needs. `id` lists the parts of the identity, `usage` a usage object of a model API.

    `consumer` should be a name that the gateway itself has checked, never a header that any client can set.
    """

    time: str
    consumer: str
    model: str
    id: tuple[str, ...] = ()
    usage: str = ""
    input_tokens: str = ""
    output_tokens: str = ""
    cache_read_input_tokens: str = ""
    cache_creation_input_tokens: str = ""
    reasoning_output_tokens: str = ""
    total_tokens: str = ""
    provider: str = ""
    site: str = ""
    status: str = ""
    attributes: dict[str, str] = {}
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    zone: str = ""
    input_excludes_cache: bool = False


def read_mapping(content: Fields, base: LineMapping | None = None) -> LineMapping:
    """A mapping as a file tells it, on top of another one.  Raises RecordError that names the field."""
    given = {**(msgspec.to_builtins(base) if base else {}), **content}
    if isinstance(given.get("id"), str):
        given["id"] = [given["id"]]
    try:
        mapping = msgspec.convert(given, LineMapping)
    except msgspec.ValidationError as error:
        raise RecordError(f"mapping: {error}") from error
    if not (mapping.usage or (mapping.input_tokens and mapping.output_tokens)):
        raise RecordError("mapping: needs `usage`, or both `input_tokens` and `output_tokens`")
    _zone(mapping.zone)
    return mapping


class LineReader:
    """The usage of lines by one mapping; `derived_id` is given where a line tells none of its own."""

    def __init__(self, mapping: LineMapping, source: str) -> None:
        self._source = source
        self._mapping = mapping
        self._find = {name: path(getattr(mapping, name)) for name in _PATHS}
        self._id = [path(part) for part in mapping.id]
        self._attributes = {name: path(text) for name, text in mapping.attributes.items()}
        self._unit = UNITS[mapping.time_unit]
        self._zone = _zone(mapping.zone)

    def __call__(self, fields: Fields, derived_id: str) -> list[Told]:
        """At most one record: nothing where no model was called.  Raises RecordError."""
        model = _text(self._find["model"](fields), "model")
        status = _text(self._find["status"](fields), "status")
        try:
            classes = self.classes(fields)
        except _PartlyToldError as error:
            return [Incomplete(self._fields(fields, derived_id, model, status), str(error))]
        if classes is None and model is None:
            return []
        if classes is None and failed(status):
            classes = NOTHING
        told = self._fields(fields, derived_id, model, status)
        if classes is None:
            return [Incomplete(told, f"no token counts for model {model}, status {status or 'not told'}")]
        attributes = {**classes.remarks, **(told["attributes"] or {})} or None
        return [from_row(TokenUsage, {**told, **classes.counts, "attributes": attributes})]

    def classes(self, fields: Fields) -> TokenClasses | None:
        """The counts, None where none is told.  Raises RecordError where they are no counts or contradict each other."""
        usage = self._find["usage"](fields)
        if isinstance(usage, Mapping) and any(isinstance(value, int) for value in usage.values()):
            return token_classes(usage)
        counts = {name: whole({name: self._find[name](fields)}, name) for name in _COUNTS}
        if all(counts[name] is None for name in _COUNTS):
            return None
        return _classes(counts, self._mapping.input_excludes_cache)

    def _fields(self, fields: Fields, derived_id: str, model: str | None, status: str | None) -> dict[str, Any]:
        attributes = {name: _text(find(fields), name) for name, find in self._attributes.items()}
        return {
            "id": self._identity(fields) or derived_id,
            "source": self._source,
            "time": self._instant(self._find["time"](fields)),
            "consumer": _needed(_text(self._find["consumer"](fields), "consumer"), "consumer", self._mapping.consumer),
            "model": _needed(model, "model", self._mapping.model),
            "provider": _text(self._find["provider"](fields), "provider"),
            "site": _text(self._find["site"](fields), "site"),
            "status": status,
            "attributes": {name: value for name, value in attributes.items() if value is not None} or None,
        }

    def _identity(self, fields: Fields) -> str | None:
        """All parts joined, or None if the first is not told: the others only keep clients from reusing it."""
        parts = [_text(find(fields), "id") for find in self._id]
        return ":".join(part or "" for part in parts) if parts and parts[0] else None

    def _instant(self, told: Any) -> str:
        if told is None:
            raise RecordError(f"time is missing: none of {self._mapping.time}", "time")
        seconds = _number(told)
        if seconds is not None:
            try:
                return _from_epoch(seconds, self._unit).isoformat()
            except (OverflowError, ValueError, OSError):
                raise RecordError(f"time {told} is no time in {self._mapping.time_unit} since 1970", "time") from None
        if not isinstance(told, str) or self._zone is None:
            return str(told)
        try:
            instant = datetime.fromisoformat(told)
        except ValueError:
            return told
        return (instant if instant.tzinfo else instant.replace(tzinfo=self._zone)).isoformat()


class _PartlyToldError(Exception):
    """Some counts are told and one that cannot be done without is not."""


def _classes(counts: Mapping[str, int | None], excludes_cache: bool) -> TokenClasses:
    given, produced, total = counts["input_tokens"], counts["output_tokens"], counts["total_tokens"]
    read, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    cached = (read or 0) + (written or 0)
    if given is None and produced is None and total is not None:
        given, produced = total, 0
    if given is not None and produced is None and total is not None and given == total:
        produced = 0
    if given is None or produced is None:
        raise _PartlyToldError(f"{'input_tokens' if given is None else 'output_tokens'} is not told, but other counts are")
    if cached and total is not None:
        excludes_cache = _total_excludes(given, produced, cached, total)
    return TokenClasses(
        given + cached if excludes_cache else given, read or 0, written or 0, produced,
        counts["reasoning_output_tokens"] or 0, cache_known=read is not None, usage_source="provider",
    )  # fmt: skip


def _total_excludes(given: int, produced: int, cached: int, total: int) -> bool:
    """Whether the input leaves the cached tokens out, as Anthropic counts: the total proves it.  Raises RecordError."""
    if total not in (given + produced, given + produced + cached):
        raise RecordError(
            f"total_tokens {total} is neither input {given} + output {produced} nor that with {cached} cached",
            "total_tokens",
        )
    return total != given + produced


def failed(status: str | None) -> bool:
    """Whether a status tells that the request was refused or failed; a client that left (499) may have used tokens.

    >>> [failed(status) for status in ("200", "429", "503", "499", "0", "failure", None)]
    [False, True, True, False, False, True, False]
    """
    if status is None or not status.isdigit():
        return status == "failure"
    return int(status) >= 400 and int(status) != CLIENT_LEFT


def path(text: str) -> Callable[[Fields], Any]:
    """What finds the value of a path; None where nothing is told.

    >>> path("llm.model | model")({"llm": '{"model": "qwen"}', "model": "x"})
    'qwen'
    >>> path("gen_ai.request.model")({"gen_ai.request.model": "qwen"})
    'qwen'
    """
    alternatives = [(name, tuple(name.split("."))) for name in (part.strip() for part in text.split("|")) if name]

    def find(fields: Fields) -> Any:
        for whole_name, steps in alternatives:
            value = fields.get(whole_name)
            if value is None and len(steps) > 1 and steps[0] in fields:
                value = _walk(fields, steps)
            if value is not None and not (isinstance(value, str) and value in NOT_TOLD):
                return opened(value)
        return None

    return find


def opened(value: Any) -> Any:
    """The object in a text that holds one, anything else as it is."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
    return value


def _walk(fields: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        fields = opened(fields)
        if not isinstance(fields, Mapping):
            return None
        fields = fields.get(step)
    return fields


def _text(value: Any, name: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RecordError(f"{name} must be a text", name)
    if isinstance(value, str) and len(value) > MAX_KEPT_TEXT:
        raise RecordError(f"{name} is longer than {MAX_KEPT_TEXT} characters", name)
    return str(value)


def _needed(value: str | None, name: str, looked_in: str) -> str:
    if value is None:
        raise RecordError(f"{name} is missing: none of {looked_in}", name)
    return value


def _number(told: Any) -> int | float | None:
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= 20:
        return int(told)
    return told if isinstance(told, int | float) and not isinstance(told, bool) else None


def _from_epoch(told: int | float, unit: int) -> datetime:
    """Whole numbers exactly; a nanosecond is cut to its microsecond."""
    if isinstance(told, float):
        return datetime.fromtimestamp(told / unit, UTC)
    seconds, rest = divmod(told, unit)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1_000_000 // unit)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RecordError(f"mapping: zone {name!r} is not a known time zone", "zone") from error


_COUNTS: Final = (
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_output_tokens",
    "total_tokens",
)  # fmt: skip
_PATHS: Final = ("time", "consumer", "model", "usage", "provider", "site", "status", *_COUNTS)
