"""PURE: which field of a line of a gateway's log contains what, and the usage in the line.

A path is a name, names joined by dots, or several paths with `|` between them, of which the first that has a value
counts: `llm.model | model`. A name with dots in it (`gen_ai.request.model`) is found as it is before it is taken apart,
and a text that holds a JSON object is looked into, for Higress writes JSON inside of JSON. What no path names is not read:
prompts and answers in a log go nowhere.

**A missing count is not zero.** A request that failed (status from 400 up, or `failure`) without counts used nothing. Any
other that names a model and states no counts or only zeros, such as a stream whose client hung up, is `Incomplete`: it is
reported without counts, so that the platform keeps it in quarantine and the close shows it. The same becomes of counts that
`metering.token_usage` refuses, with the reason and the numbers of the usage object. An answer from the gateway's own cache
used nothing, though it repeats the counts of the first one.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from metering.gateways.translation import MAX_KEPT_TEXT, whole
from metering.record_checks import RecordError
from metering.records import (
    PAID_BY_CALL,
    USAGE_REFUSED,
    TokenUsage,
    from_row,
)
from metering.token_usage import NOTHING, REPEATED, TokenClasses, classes_by_name, token_classes, without_texts

Fields = Mapping[str, Any]
NOT_TOLD: Final = frozenset({"", "-", "null"})
HIT: Final = ("hit", "true")
NO_COUNTS: Final = "no token counts"
CLIENT_LEFT: Final = 499
UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Incomplete(msgspec.Struct, frozen=True):
    """A request of which nobody can say what it used: the record as far as it is known, why, and its usage object."""

    fields: dict[str, Any]
    reason: str
    usage: Any = None

    @property
    def is_paid_by_call(self) -> bool:
        """Whether it has no tokens by its nature."""
        return self.reason.startswith(PAID_BY_CALL)

    @property
    def record(self) -> dict[str, Any]:
        """What the platform keeps in quarantine: who adds the counts to it has a valid record."""
        kept = {USAGE_REFUSED: self.reason[:MAX_KEPT_TEXT], **({} if self.usage is None else {"usage": self.usage})}
        return {**self.fields, "attributes": {**(self.fields["attributes"] or {}), **kept}}


LogRecord = TokenUsage | Incomplete


class LineMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths to what a record needs. `id` lists the parts of the identity, `usage` a usage object of a model API.

    `tool_use_input_tokens` is input that `input_tokens` leaves out. `input_only`: the log is of requests that make no
    output (embeddings, rerank), so that a total alone is input. `gateway_cache` is true or begins with `hit` for an answer
    that the gateway had in a cache of its own.

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
    tool_use_input_tokens: str = ""
    total_tokens: str = ""
    provider: str = ""
    site: str = ""
    status: str = ""
    gateway_cache: str = ""
    attributes: dict[str, str] = {}
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    zone: str = ""
    input_excludes_cache: bool = False
    input_only: bool = False


def read_mapping(content: Fields, base: LineMapping | None = None) -> LineMapping:
    """A mapping from a file, on top of another one.  Raises RecordError that names the field."""
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
    """The usage of lines by one mapping; `derived_id` is given where a line has none of its own."""

    def __init__(self, mapping: LineMapping, source: str) -> None:
        self._source = source
        self._mapping = mapping
        self._find = {name: path(getattr(mapping, name)) for name in _PATHS}
        self._id = [path(part) for part in mapping.id]
        self._attributes = {name: path(text) for name, text in mapping.attributes.items()}
        self._unit = UNITS[mapping.time_unit]
        self._zone = _zone(mapping.zone)

    def __call__(self, fields: Fields, derived_id: str) -> list[LogRecord]:
        """At most one record: nothing where no model was called.  Raises RecordError."""
        model = _text(self._find["model"](fields), "model")
        status = _text(self._find["status"](fields), "status")
        usage = self._find["usage"](fields)
        counts = {name: self._find[name](fields) for name in _COUNTS} if usage is None else {}
        hit = str(self._find["gateway_cache"](fields)).lower().startswith(HIT)
        try:
            classes = REPEATED if hit else self._by_name(counts) if usage is None else self._of_object(usage)
        except RecordError as error:
            kept = without_texts(counts if usage is None else usage)
            return [Incomplete(self._fields(fields, derived_id, model, status), str(error), kept)]
        if classes in (NOTHING, REPEATED) and model is None:
            return []
        row = self._fields(fields, derived_id, model, status)
        if not (classes.input_tokens or classes.output_tokens or hit or failed(status)):
            kept = None if classes is NOTHING else without_texts(counts if usage is None else usage)
            return [Incomplete(row, f"{NO_COUNTS} for model {model}, status {status or 'not reported'}", kept)]
        attributes = {**classes.remarks, **(row["attributes"] or {})} or None
        return [from_row(TokenUsage, {**row, **classes.counts, "attributes": attributes})]

    def _of_object(self, usage: Any) -> TokenClasses:
        """Classes of a usage object.  Raises RecordError where they cannot be read for certain."""
        if not isinstance(usage, Mapping):
            raise RecordError("usage must be an object", "usage")
        return token_classes(usage, input_only=self._mapping.input_only)

    def _by_name(self, counts: Fields) -> TokenClasses:
        """Classes of counts that the line has under names of its own.  Raises RecordError likewise."""
        numbers = {name: whole(counts, name) for name in _COUNTS}
        return classes_by_name(numbers, cache_beside=self._mapping.input_excludes_cache, input_only=self._mapping.input_only)

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
        """All parts joined, or None if the first is missing: the others only keep clients from reusing it."""
        parts = [_text(find(fields), "id") for find in self._id]
        return ":".join(part or "" for part in parts) if parts and parts[0] else None

    def _instant(self, value: Any) -> str:
        if value is None:
            raise RecordError(f"time is missing: none of {self._mapping.time}", "time")
        seconds = _number(value)
        if seconds is not None:
            try:
                return _from_epoch(seconds, self._unit).isoformat()
            except (OverflowError, ValueError, OSError):
                raise RecordError(f"time {value} is no time in {self._mapping.time_unit} since 1970", "time") from None
        if not isinstance(value, str) or self._zone is None:
            return str(value)
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            return value
        return (instant if instant.tzinfo else instant.replace(tzinfo=self._zone)).isoformat()


def failed(status: str | None) -> bool:
    """Whether a status means that the request was refused or failed; a client that left (499) may have used tokens.

    >>> [failed(status) for status in ("200", "429", "503", "499", "0", "failure", None)]
    [False, True, True, False, False, True, False]
    """
    if status is None or not status.isdigit():
        return status == "failure"
    return int(status) >= 400 and int(status) != CLIENT_LEFT


def path(text: str) -> Callable[[Fields], Any]:
    """What finds the value of a path; None where there is no value.

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


def _number(value: Any) -> int | float | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _from_epoch(value: int | float, unit: int) -> datetime:
    """Whole numbers exactly; a nanosecond is cut to its microsecond."""
    if isinstance(value, float):
        return datetime.fromtimestamp(value / unit, UTC)
    seconds, rest = divmod(value, unit)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1_000_000 // unit)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RecordError(f"mapping: zone {name!r} is not a known time zone", "zone") from error


_COUNTS: Final = (
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_output_tokens",
    "tool_use_input_tokens", "total_tokens",
)  # fmt: skip
_PATHS: Final = ("time", "consumer", "model", "usage", "provider", "site", "status", "gateway_cache", *_COUNTS)
