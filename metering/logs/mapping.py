"""PURE: mapping of a gateway's log: paths to the fields of a line, and the usage in the line.

A path is a name, names joined by dots, or several paths with `|` between them, of which the first that has a value counts:
`llm.model | model`. A name with dots in it (`gen_ai.request.model`) is looked up as it is before it is taken apart, and a
text that holds a JSON object is opened, for Higress writes JSON inside of JSON. A field that no path names is not read:
prompts and answers in a log go nowhere.

**A missing count is not zero.** A request that failed (status from 400 up, or `failure`) without counts used nothing. Any
other that names a model and states no counts or only zeros, such as a stream whose client hung up, is `Incomplete`: it is
reported without counts, so that the platform keeps it in quarantine and the close shows it. Counts that
`metering.token_usage` refuses are reported so too, with the reason and the numbers of the usage object. An answer from the
gateway's own cache used nothing, though it repeats the counts of the first one.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from metering.gateways.translation import MAX_KEPT_TEXT, failed, whole
from metering.names import name_problem
from metering.record_checks import RecordError
from metering.records import (
    DETAIL_COUNTS,
    DETAILS,
    PAID_BY_CALL,
    USAGE_REFUSED,
    TokenUsage,
    from_row,
)
from metering.request_tags import LONGEST, NOT_KEPT
from metering.token_usage import (
    NOTHING,
    REPEATED,
    TokenClasses,
    classes_by_name,
    json_object,
    numbers_of_usage,
    refuse_unread,
    token_classes,
    without_texts,
)
from metering.usage_dialects import PARTS
from metering.usage_parts import REFINEMENTS, fitting_parts, refined_tier, tier_word

Fields = Mapping[str, Any]
NOT_TOLD: Final = frozenset({"", "-", "null"})
HIT: Final = ("hit", "true")
NO_COUNTS: Final = "no token counts"
NO_USAGE: Final = (
    "request", "response", "headers", "request_headers", "response_headers", "payload", "messages", "prompt", "answer",
    "labels",
)  # fmt: skip
"""Objects of a line that copy the request and the answer, whose usage is read where the gateway states it."""
UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Incomplete(msgspec.Struct, frozen=True):
    """Request whose usage is unknown: its record without counts, the reason, and its usage object."""

    fields: dict[str, Any]
    reason: str
    usage: Any = None

    @property
    def is_paid_by_call(self) -> bool:
        """Return True if the request has no tokens by its nature."""
        return self.reason.startswith(PAID_BY_CALL)

    @property
    def record(self) -> dict[str, Any]:
        """Return the record for quarantine: with counts added, it is a valid record."""
        kept = {USAGE_REFUSED: self.reason[:MAX_KEPT_TEXT], **({} if self.usage is None else {"usage": self.usage})}
        return {**self.fields, "attributes": {**(self.fields["attributes"] or {}), **kept}}


LogRecord = TokenUsage | Incomplete


class LineMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths to the fields of a record. `id` lists the parts of the identity, `usage` a usage object of a model API.

    `tool_use_input_tokens` is input that `input_tokens` leaves out. `input_only`: the log is of requests that make no output
    (embeddings, rerank), so that a total alone is input. `gateway_cache` is true or begins with `hit` for an answer from a
    cache of the gateway's own, `estimated` is true where the gateway counted what the provider did not.

    `other_numbers`: paths of numbers whose names speak of usage but that are parts of these counts, or none.
    `tags`: the tags that are forwarded, each with its path; no other is read.

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
    estimated: str = ""
    service_tier: str = ""
    deployment: str = ""
    hardware: str = ""
    cache_creation_1h_input_tokens: str = ""
    audio_input_tokens: str = ""
    image_input_tokens: str = ""
    audio_output_tokens: str = ""
    image_output_tokens: str = ""
    searches: str = ""
    tool_calls: str = ""
    tags: dict[str, str] = {}
    attributes: dict[str, str] = {}
    other_numbers: tuple[str, ...] = ()
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    zone: str = ""
    input_excludes_cache: bool = False
    input_only: bool = False


def read_mapping(content: Fields, base: LineMapping | None = None) -> LineMapping:
    """Decode a mapping from a file, on top of another one.  Raises RecordError that names the field."""
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
    """Reader of lines by one mapping; `derived_id` is the id of a line that has none of its own."""

    def __init__(self, mapping: LineMapping, source: str, *, left_out: tuple[str, ...] = ()) -> None:
        self._source = source
        self._mapping = mapping
        self._find = {name: path(getattr(mapping, name)) for name in _PATHS}
        self._counts = {name: _alternatives(getattr(mapping, name)) for name in _COUNTS}
        self._finer = {name: paths for name in DETAIL_COUNTS if (paths := _alternatives(getattr(mapping, name)))}
        named = [*mapping.id, *(getattr(mapping, name) for name in _PATHS)]
        named += [*mapping.attributes.values(), *mapping.tags.values()]
        read = {whole_name for text in named for whole_name, _ in _alternatives(text)}
        details = {name.rpartition(".")[0] for name in read if "_details." in name}
        self._known = frozenset({*read, *mapping.other_numbers, *(f"{place}.{part}" for place in details for part in PARTS)})
        self._opened = frozenset(step for name in read for step in name.split(".")[:-1])
        self._left_out = frozenset({*NO_USAGE, *left_out, *(name for name, _ in _alternatives(mapping.usage))})
        self._id = [path(part) for part in mapping.id]
        self._attributes = {name: path(text) for name, text in mapping.attributes.items()}
        self._tags = {name: path(text) for name, text in mapping.tags.items()}
        self._unit = UNITS[mapping.time_unit]
        self._zone = _zone(mapping.zone)

    def __call__(self, fields: Fields, derived_id: str) -> list[LogRecord]:
        """Return at most one record: none if no model was called.  Raises RecordError."""
        model = _text(self._find["model"](fields), "model")
        status = _text(self._find["status"](fields), "status")
        usage = self._find["usage"](fields)
        counts = self._stated(fields) if usage is None else {}
        hit = str(self._find["gateway_cache"](fields)).lower().startswith(HIT)
        try:
            classes = REPEATED if hit else self._by_name(counts) if usage is None else self._of_object(usage)
            classes = self._with_details(classes, fields, usage)
            if self._find["estimated"](fields) in (True, "true") and not hit and classes is not NOTHING:
                classes = classes.as_estimate()
            if not (hit or model is None):
                refuse_unread(fields, known=self._known, opened=self._opened, left_out=self._left_out)
        except RecordError as error:
            unread = numbers_of_usage(fields, known=self._known, opened=self._opened, left_out=self._left_out)
            stated = counts if usage is None else usage
            kept = without_texts({**stated, **unread} if isinstance(stated, Mapping) else stated)
            return [Incomplete(self._fields(fields, derived_id, model, status), str(error), kept)]
        if classes in (NOTHING, REPEATED) and model is None:
            return []
        row = self._fields(fields, derived_id, model, status)
        if not (classes.input_tokens or classes.output_tokens or hit or failed(status)):
            kept = None if classes is NOTHING else without_texts(counts if usage is None else usage)
            return [Incomplete(row, f"{NO_COUNTS} for model {model}, status {status or 'not reported'}", kept)]
        attributes = {**classes.remarks, **(row["attributes"] or {})} or None
        if not (classes.input_tokens or classes.output_tokens):
            row.pop("service_tier", None)
        return [from_row(TokenUsage, {**row, **classes.counts, **classes.details, "attributes": attributes})]

    def _of_object(self, usage: Any) -> TokenClasses:
        """Return the classes of a usage object.  Raises RecordError if they are not certain."""
        if not isinstance(usage, Mapping):
            raise RecordError("usage must be an object", "usage")
        return token_classes(usage, input_only=self._mapping.input_only)

    def _with_details(self, classes: TokenClasses, fields: Fields, usage: Any) -> TokenClasses:
        """Return the classes with the tier and the finer counts that the line has under names of its own.

        Speed and place of inference in the usage object refine the tier.

        Raises RecordError if one of these is no count, or its names contradict each other.
        """
        if not (classes.input_tokens or classes.output_tokens):
            return classes
        found = {name: _agreed(_every(fields, paths) or None, name) for name, paths in self._finer.items()}
        parts = {**classes.parts, **fitting_parts({name: count or 0 for name, count in found.items()}, classes.counts)}
        tier, stated = tier_word(self._find["service_tier"](fields)), usage if isinstance(usage, Mapping) else {}
        refined = refined_tier(tier, {name: [stated.get(name)] for name, *_ in REFINEMENTS})
        tier = refined if tier else classes.service_tier
        return msgspec.structs.replace(classes, service_tier=tier, parts=parts) if tier or parts else classes

    def _stated(self, fields: Fields) -> dict[str, Any]:
        """Return the counts that the line has under names of its own, each as one value, or as a list of several."""
        found = {name: _every(fields, alternatives) for name, alternatives in self._counts.items()}
        return {name: values[0] if len(values) == 1 else values or None for name, values in found.items()}

    def _by_name(self, counts: Fields) -> TokenClasses:
        """Return the classes of counts that the line has under its own names.  Raises RecordError if they are uncertain."""
        numbers = {name: _agreed(values, name) for name, values in counts.items()}
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
            **{name: value for name, value in self._optional(fields).items() if value},
        }

    def _optional(self, fields: Fields) -> dict[str, Any]:
        """Return tier, deployment, hardware and the chosen tags, as far as the line states them."""
        tags = {name: _tag(find(fields)) for name, find in self._tags.items()}
        return {
            "service_tier": tier_word(self._find["service_tier"](fields)),
            "deployment": _name(self._find["deployment"](fields)), "hardware": _name(self._find["hardware"](fields)),
            "tags": {name: value for name, value in tags.items() if value is not None},
        }  # fmt: skip

    def _identity(self, fields: Fields) -> str | None:
        """Return all parts joined, or None if the first is missing: the others only keep clients from reusing it."""
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


def path(text: str) -> Callable[[Fields], Any]:
    """Return a function that finds the value of a path, or None.

    >>> path("llm.model | model")({"llm": '{"model": "qwen"}', "model": "x"})
    'qwen'
    >>> path("gen_ai.request.model")({"gen_ai.request.model": "qwen"})
    'qwen'
    """
    alternatives = _alternatives(text)

    def find(fields: Fields) -> Any:
        return next(iter(_every(fields, alternatives)), None)

    return find


def _alternatives(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, tuple(name.split("."))) for name in (part.strip() for part in text.split("|")) if name]


def _every(fields: Fields, alternatives: list[tuple[str, tuple[str, ...]]]) -> list[Any]:
    """Return the values of all alternatives that have one."""
    found = []
    for whole_name, steps in alternatives:
        value = fields.get(whole_name)
        if value is None and len(steps) > 1 and steps[0] in fields:
            value = _walk(fields, steps)
        if value is not None and not (isinstance(value, str) and value in NOT_TOLD):
            found.append(json_object(value))
    return found


def _agreed(stated: Any, name: str) -> int | None:
    """Return the count that all its names state, ignoring zeros beside it.  Raises RecordError on a contradiction."""
    values = [whole({name: value}, name) for value in (stated if isinstance(stated, list) else [stated])]
    counts = {value for value in values if value}
    if len(counts) > 1:
        raise RecordError(f"{name}: {' and '.join(str(count) for count in sorted(counts))} contradict each other", name)
    return next(iter(counts), None if None in values and len(values) == 1 else 0)


def _walk(fields: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        fields = json_object(fields)
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


def _name(value: Any) -> str | None:
    """Return a valid name; None for any other value."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_KEPT_TEXT and name_problem(value) is None else None


def _tag(value: Any) -> Any:
    return value if value is None or (isinstance(value, str) and len(value) <= LONGEST) else NOT_KEPT


def _needed(value: str | None, name: str, looked_in: str) -> str:
    if value is None:
        raise RecordError(f"{name} is missing: none of {looked_in}", name)
    return value


def _number(value: Any) -> int | float | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _from_epoch(value: int | float, unit: int) -> datetime:
    """Return the instant of an epoch value; whole numbers are exact, nanoseconds are cut to microseconds."""
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
_PATHS: Final = (
    "time", "consumer", "model", "usage", "provider", "site", "status", "gateway_cache", "estimated", *_COUNTS, *DETAILS
)  # fmt: skip
