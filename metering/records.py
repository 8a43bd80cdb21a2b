"""Usage records of the contract: what agents and gateways report, and the keys that make a report unique.

Pure: no clock, no database, no framework. A record is decoded and validated in one step (`msgspec`), so that a value
of this module is always well formed: counts are not negative, instants carry an offset and are held in UTC, and no
text contains NUL, which PostgreSQL cannot store.

Unknown fields are refused by name. A misspelled `cache_read_input_tokens` that was silently ignored would bill cached
input at the full price; a sender's own fields go into `attributes` or `labels`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, TypeVar, get_args, get_type_hints

import msgspec

from metering.messages import Message
from metering.names import name_problem, text_problem
from metering.raw_json import repeated_key
from metering.record_checks import (
    EARLIEST,
    RecordError,
    check_decimals,
    check_fraction,
    check_instant,
    check_order,
)
from metering.token_keys import token_key

MAX_COUNT: Final = 10**15
"""Largest token count or device quantity of one record; a larger one is taken for an error of the sender."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Label = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
MAX_SEQUENCE: Final = 10**18
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]

USAGE_REFUSED: Final = "usage_refused"
"""Attribute of a record without counts: the reason why its reporter could not read its usage."""
GATEWAY_ESTIMATE: Final = "gateway_estimate"
"""Value of the attribute `usage_source` where the gateway estimated counts that the provider did not report."""
PAID_BY_CALL: Final = "paid by the call"
"""First words of the refusal of a request that has no tokens although the gateway charged for it."""


def paid_by_call(model: object) -> Message:
    """Return the refusal of a success without tokens, whose cost is counted by call, picture or second: a person decides."""
    return Message("paid by the call: model %(model)s has no tokens", model=model)


INSTANT_FIELDS: Final = (
    "time", "started_at", "ended_at", "observed_until", "from", "until", "start", "end",
    "end_earliest", "end_latest",
)
RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)\Z")

LATER_FIELDS: Final = ("capacity_type", "tags")
"""Optional fields of an allocation that older platforms refuse; `GET version` names those that the platform takes."""

NUL_ESCAPE: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


Dimension = tuple[str, str, str, str | None, str | None, str | None]
Counts = tuple[int, int, int, int, int]
Content = tuple[int | None, Dimension, Counts, bytes]
"""Microseconds since 2000 (None where the sender gave no time), dimension, counts, attributes as ordered JSON."""

DETAIL_TEXTS: Final = ("service_tier", "deployment", "hardware")
DETAIL_COUNTS: Final = (
    "cache_creation_1h_input_tokens", "audio_input_tokens", "image_input_tokens", "audio_output_tokens",
    "image_output_tokens", "searches", "tool_calls",
)  # fmt: skip
DETAILS: Final = (*DETAIL_TEXTS, *DETAIL_COUNTS)
"""Optional fields of a token record that are stored beside the ledger, in the order of `TokenUsage.details`."""
Details = tuple[str | int | None, ...]
NO_DETAILS: Final[Details] = (None,) * len(DETAILS)
STANDARD_TIER: Final = "standard"
_STANDARD_NAMES: Final = frozenset({"default", "auto", "on_demand", STANDARD_TIER})


def canonical_tier(stated: str) -> str:
    """Return a provider's service tier in small letters; every name of the ordinary tier becomes `standard`.

    >>> canonical_tier("ON_DEMAND"), canonical_tier("auto"), canonical_tier("Flex")
    ('standard', 'standard', 'flex')
    """
    tier = stated.lower()
    return STANDARD_TIER if tier in _STANDARD_NAMES else tier


def canonical_capacity_type(stated: str) -> str:
    """Return a platform's capacity type in small letters with `_` between words.

    >>> canonical_capacity_type("ON_DEMAND"), canonical_capacity_type("on-demand"), canonical_capacity_type("SPOT")
    ('on_demand', 'on_demand', 'spot')
    """
    return stated.lower().replace("-", "_")


def tags_agree(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Return True if no tag has two different values; None stands for a value that was not kept."""
    if not one or not other:
        return True
    return all(value is None or other.get(key) is None or value == other[key] for key, value in one.items())


def details_agree(one: Details, other: Details) -> bool:
    """Return True if no detail has two different values; a detail that only one side states is no difference."""
    return all(first is None or second is None or first == second for first, second in zip(one, other, strict=True))


stated_details = attrgetter(*DETAILS)
"""Getter of the values of DETAILS in a record."""
_parts = attrgetter(*(name for name in DETAIL_COUNTS if name.endswith("_tokens")))
_NO_PARTS: Final = (None,) * 5


def states_details(record: "UncheckedTokenUsage") -> bool:
    """Return True if the record states one of DETAILS, or a tag."""
    return stated_details(record) != NO_DETAILS or bool(record.tags)


class UncheckedTokenUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Token record whose fields are valid one by one; a batch decoder checks the relations between fields afterwards."""

    id: Name
    source: Name
    time: Instant
    consumer: Name
    model: Name
    input_tokens: Count
    cache_read_input_tokens: Count
    cache_creation_input_tokens: Count
    output_tokens: Count
    reasoning_output_tokens: Count
    site: Label | None = None
    provider: Label | None = None
    status: Label | None = None
    attributes: dict[str, Any] | None = None
    sequence: Number | None = None
    sequence_run: Label | None = None
    service_tier: Name | None = None
    deployment: Name | None = None
    hardware: Name | None = None
    cache_creation_1h_input_tokens: Count | None = None
    audio_input_tokens: Count | None = None
    image_input_tokens: Count | None = None
    audio_output_tokens: Count | None = None
    image_output_tokens: Count | None = None
    searches: Count | None = None
    tool_calls: Count | None = None
    tags: dict[str, Any] | None = None

    @property
    def uncached_input_tokens(self) -> int:
        """Return the input tokens that were neither read from nor written to the prompt cache."""
        return self.input_tokens - self.cache_read_input_tokens - self.cache_creation_input_tokens

    @property
    def key(self) -> bytes:
        """Return the 128-bit key of (source, id), which identifies the record for ever."""
        return token_key(self.source, self.id)

    @property
    def dimension(self) -> Dimension:
        """Return the fields by which the counts are summed."""
        return (self.source, self.consumer, self.model, self.site, self.provider, self.status)

    @property
    def counts(self) -> Counts:
        """Return the counts: input, cache read, cache creation, output, reasoning."""
        return (
            self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens, self.output_tokens,
            self.reasoning_output_tokens,
        )  # fmt: skip

    @property
    def content(self) -> Content:
        """Return the fields that distinguish a duplicate from a conflict.

        Records of one key are the same report if their contents are equal and their `details` agree (`same_report`).
        """
        return microseconds(self.time), self.dimension, self.counts, _ordered(self.attributes) or b""

    @property
    def details(self) -> Details:
        """Return the values of DETAILS, None where the record states none; the service tier has its canonical name."""
        tier, *others = stated_details(self)
        return (None if tier is None else canonical_tier(tier), *others)

    def same_report(self, other: "UncheckedTokenUsage") -> bool:
        """Return True if the other record of the same key contradicts nothing in this record."""
        agree = details_agree(self.details, other.details) and tags_agree(self.tags, other.tags)
        return agree and self.content == other.content

    def check_parts(self) -> None:
        """Raise RecordError if a count is larger than the count that contains it.

        Audio and image tokens are disjoint parts of the uncached input or of the output.
        """
        for names, whole, containing in (
            (("cache_creation_1h_input_tokens",), self.cache_creation_input_tokens, "cache_creation_input_tokens"),
            (("audio_input_tokens", "image_input_tokens"), self.uncached_input_tokens, "uncached input"),
            (("audio_output_tokens", "image_output_tokens"), self.output_tokens, "output_tokens"),
        ):  # fmt: skip
            stated = {name: part for name in names if (part := getattr(self, name)) is not None}
            if sum(stated.values()) > whole:
                parts = " + ".join(f"{name} {part}" for name, part in stated.items())
                raise RecordError(Message(
                    "%(parts)s is more than %(containing)s %(all)s, which contains it",
                    parts=parts, containing=containing, all=whole,
                ), next(name for name in stated if stated[name]))  # fmt: skip


class TokenUsage(UncheckedTokenUsage, frozen=True, forbid_unknown_fields=True, gc=False):
    """Tokens of one gateway request. `input_tokens` contains both cache classes; `output_tokens` contains reasoning.

    A source may number its records one by one within a `sequence_run`, so that a lost record shows as a gap. Numbers are
    no part of the content.
    """

    def __post_init__(self) -> None:
        check_instant("time", self.time)
        if self.uncached_input_tokens < 0:
            raise RecordError(
                Message(
                    "input_tokens %(input)s is less than cache_read_input_tokens %(read)s + cache_creation_input_tokens "
                    "%(written)s, which it contains",
                    input=self.input_tokens, read=self.cache_read_input_tokens, written=self.cache_creation_input_tokens,
                ),
                "input_tokens",
            )
        if self.reasoning_output_tokens > self.output_tokens:
            raise RecordError(
                Message(
                    "reasoning_output_tokens %(part)s is more than output_tokens %(all)s, which contains it",
                    part=self.reasoning_output_tokens, all=self.output_tokens,
                ),
                "reasoning_output_tokens",
            )
        if _parts(self) != _NO_PARTS:
            self.check_parts()


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Controller behind a pod: a Volcano Job, a PyTorchJob, a Deployment."""

    kind: Label
    name: Name
    uid: Label | None = None


class GpuAllocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices allocated to one pod from `started_at` until `ended_at`; while open, last observed at `observed_until`.

    `quantity` counts units of the extended resource, each of which is `device_fraction` of a physical device; null where
    the fraction is unknown, and `share_unknown` says why. Such an allocation is in no charge until a person decides.

    `end_rule` names the value chosen as the end; an `end_estimated` one was not reported by the cluster and lies within
    [end_earliest, end_latest]. `reconstructed_from` names the source of an allocation that was rebuilt afterwards; a watched
    allocation takes precedence over a rebuilt one. `capacity_type`: `on_demand`, `spot`, `reserved` or another name; it and
    `tags` are no part of the identity, so that a report of a release that does not know them counts as the same.
    """

    allocation_id: Name
    cluster: Name
    namespace: Name
    pod: Name
    pod_uid: Name
    resource: Name
    quantity: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    device_fraction: Decimal | None
    accelerator: Name
    node: Label
    started_at: Instant
    ended_at: Instant | None = None
    observed_until: Instant | None = None
    end_reason: Label | None = None
    scheduler: Label | None = None
    queue: Label | None = None
    workload: Workload | None = None
    labels: dict[str, str] | None = None
    priority_class: Label | None = None
    site: Label | None = None
    pool: Label | None = None
    end_rule: Label | None = None
    end_estimated: bool | None = None
    end_earliest: Instant | None = None
    end_latest: Instant | None = None
    reconstructed_from: Label | None = None
    share_unknown: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)] | None = None
    capacity_type: Name | None = None
    tags: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fraction(self.device_fraction, self.share_unknown)
        check_order("started_at", self.started_at, "ended_at", self.ended_at)
        check_order("started_at", self.started_at, "observed_until", self.observed_until)
        check_instant("end_earliest", self.end_earliest or EARLIEST)
        check_order("end_earliest", self.end_earliest or EARLIEST, "end_latest", self.end_latest)
        if self.ended_at is None and self.observed_until is None:
            raise RecordError(Message(
                "observed_until is missing: an open allocation says how far it was seen"
            ), "observed_until")

    @property
    def known_until(self) -> datetime:
        """Return the end, or the last observation of an allocation that is still open."""
        until = self.ended_at or self.observed_until
        if until is None:  # excluded by __post_init__
            raise RecordError(Message("observed_until is missing"), "observed_until")
        return until

    @property
    def identity(self) -> int:
        """Return a signed 64-bit hash of the fields that may not change between two reports of one allocation."""
        workload = self.workload and (self.workload.kind, self.workload.name, self.workload.uid)
        return int.from_bytes(
            _digest(
                (
                    self.cluster, self.namespace, self.pod, self.pod_uid, self.resource, self.quantity,
                    _plain(self.device_fraction), self.accelerator, self.node,
                    microseconds(self.started_at), self.scheduler, self.queue, workload,
                    _ordered(self.labels), self.priority_class, self.site, self.pool,
                ),
                8,
            ),
            "big",
            signed=True,
        )  # fmt: skip


    @property
    def billing_facts(self) -> tuple[object, ...]:
        """Return the fields besides the end that decide the bill: all reports of one allocation agree on these fields."""
        return (
            self.cluster, self.namespace, self.pod_uid, self.resource, self.quantity,
            self.device_fraction and self.device_fraction.normalize(), self.accelerator, self.started_at,
        )  # fmt: skip


def hold_id(cluster: str, pod_uid: str, resource: str, started_at: datetime) -> str:
    """Return the key of an allocation; agent, backfill and file form the same one.

    >>> hold_id("hq-1", "uid-1", "nvidia.com/gpu", datetime(2026, 10, 10, tzinfo=UTC))
    'hq-1/uid-1/nvidia.com/gpu/2026-10-10T00:00:00+00:00'
    """
    return f"{cluster}/{pod_uid}/{resource}/{started_at.astimezone(UTC).isoformat()}"


class NodeCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """Units of one extended resource that a node offered in [start, until)."""

    cluster: Name
    node: Name
    accelerator: Name
    resource: Name
    quantity: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    start: Instant
    until: Instant
    condition: Label | None = None

    def __post_init__(self) -> None:
        check_order("from", self.start, "until", self.until)


class EfficiencySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Model and hardware FLOP utilisation of one pod (or workload) in [start, end). Null means: not measured.

    `method`: the formula and who reported; `reason`: why there is no score, or why a person should look at the score.
    """

    cluster: Name
    start: Instant
    end: Instant
    gpu_seconds: Decimal
    mfu: Decimal | None
    hfu: Decimal | None
    dtype: Label
    coverage: Decimal
    pod_uid: Name | None = None
    workload: Name | Workload | None = None
    method: Label | None = None
    reason: Label | None = None

    def __post_init__(self) -> None:
        check_order("start", self.start, "end", self.end)
        if (self.pod_uid is None) == (self.workload is None):
            raise RecordError(Message("exactly one of pod_uid and workload must name what was measured"), "pod_uid")
        if not self.gpu_seconds.is_finite() or not 0 <= self.gpu_seconds < MAX_COUNT:
            raise RecordError(Message(
                "gpu_seconds %(value)s must be a number from 0 to %(most)s", value=self.gpu_seconds, most=MAX_COUNT
            ), "gpu_seconds")
        for field, ratio in (("mfu", self.mfu), ("hfu", self.hfu), ("coverage", self.coverage)):
            if ratio is not None and not (ratio.is_finite() and 0 <= ratio <= 1):
                raise RecordError(Message(
                    "%(field)s %(ratio)s must be a ratio from 0 to 1", field=field, ratio=ratio
                ), field)
            if ratio is not None:
                check_decimals(field, ratio, 20)
        check_decimals("gpu_seconds", self.gpu_seconds, 6)

    @property
    def workload_name(self) -> str:
        """Return the workload's name, given alone or as an allocation gives it; "" where a pod was measured."""
        return self.workload.name if isinstance(self.workload, Workload) else self.workload or ""

    @property
    def workload_kind(self) -> str:
        """Return the workload's kind; "" where only a name is given, which then means every workload of that name."""
        return self.workload.kind if isinstance(self.workload, Workload) else ""


class EngineReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token counters of one replica of an inference server at `time`, counted since its start at `started_at`.

    `prompt_tokens` contains tokens answered from the prefix cache, `generation_tokens` contains reasoning. `started_at`
    distinguishes a restart from a counter that went on; null where the server does not report it.
    """

    source: Name
    replica: Name
    model: Name
    time: Instant
    prompt_tokens: Count
    generation_tokens: Count
    started_at: Instant | None = None

    def __post_init__(self) -> None:
        check_instant("time", self.time)
        if self.started_at is not None:
            check_order("started_at", self.started_at, "time", self.time)


R = TypeVar("R", TokenUsage, GpuAllocation, NodeCapacity, EfficiencySample, EngineReading)


class Rejected(msgspec.Struct, frozen=True):
    """Record that failed validation: its index in the body, its raw bytes, and the error."""

    index: int
    raw: bytes
    error: RecordError


class Batch(msgspec.Struct, Generic[R], frozen=True):
    """Result of decoding one body: the valid records with their index, and the rejected records."""

    records: list[tuple[int, R]]
    rejected: list[Rejected]


def decode_batch(kind: type[R], raws: Sequence[bytes | msgspec.Raw]) -> Batch[R]:
    """Decode and validate records one by one, so that an invalid record never costs its neighbours."""
    decode = msgspec.json.Decoder(kind).decode
    records: list[tuple[int, R]] = []
    rejected: list[Rejected] = []
    for index, raw in enumerate(raws):
        try:
            record = decode(raw)
            check_record(record, bytes(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordError) as error:
            rejected.append(Rejected(index, bytes(raw), record_error(error, bytes(raw))))
        else:
            records.append((index, record))
    return Batch(records, rejected)


def check_record(record: msgspec.Struct, raw: bytes) -> None:
    """Raise RecordError if `raw` repeats a key, or if a text of `record`, which was decoded from `raw`, breaks a rule."""
    # A decoder keeps the last of two equal keys, so a record could be billed by a value that its sender did not mean.
    key = repeated_key(raw)
    if key is not None:
        raise RecordError(Message("%(key)s occurs twice, and only one of the two can be meant", key=repr(key)), key)
    check_texts(record)


def check_texts(record: msgspec.Struct) -> None:
    """Raise RecordError unless every name is a valid name and every other text prints on one line (`metering.names`).

    Mappings such as `attributes` and `labels` are content, in which only NUL is refused: PostgreSQL cannot store it.
    """
    names = _name_fields(type(record))
    for field in record.__struct_fields__:
        value, problem = getattr(record, field), None
        if isinstance(value, msgspec.Struct):
            check_texts(value)
        elif isinstance(value, dict):
            problem = Message("contains a NUL character") if NUL_ESCAPE.search(msgspec.json.encode(value)) else None
        elif isinstance(value, str):
            problem = name_problem(value) if field in names else text_problem(value)
        if problem is not None:
            raise RecordError(Message("%(field)s: %(text)s", field=field, text=problem), field)


@cache
def _name_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the fields of a record type that hold a `Name`."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(field for field, hint in hints.items() if Name in (hint, *get_args(hint)))


def from_row(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Build a record from a row of a file, whose numbers are text.  Raises RecordError that names field and value."""
    # Lax conversion reads numbers from text, and would also read the text "1760054400" as an instant: a Unix timestamp.
    for field in INSTANT_FIELDS:
        value = fields.get(field)
        if isinstance(value, str) and not RFC_3339.match(value):
            raise RecordError(Message(
                "%(field)s %(value)s: expected an RFC 3339 instant with an offset", field=field, value=_shown(field, fields)
            ), field)
    try:
        return msgspec.convert(dict(fields), kind, strict=False)
    except msgspec.ValidationError as error:
        raise record_error(error, fields) from error


def record_error(error: Exception, given: bytes | Mapping[str, Any] = b"") -> RecordError:
    """Convert a decoder's error to RecordError, which names the field and, where there is one, the value."""
    cause = error if isinstance(error, RecordError) else error.__cause__
    if isinstance(cause, RecordError):
        return cause
    if isinstance(error, UnicodeDecodeError):
        return RecordError(Message("not valid UTF-8 at byte %(start)s", start=error.start))
    if "surrogate" in str(error):
        return RecordError(Message("contains half a character: %(error)s", error=error))
    # msgspec names the field only in its message: "Expected `int`, got `str` - at `$.input_tokens`".
    text, _, path = str(error).partition(" - at `$")
    field = path.strip("`").lstrip(".") or None
    if field is None:
        field = text.split("`")[1] if text.startswith("Object ") and "`" in text else None
        refused = _refused_before(given)
        return RecordError(Message("%(refused)s (%(text)s)", refused=refused, text=text) if refused else text, field)
    return RecordError(Message(
        "%(field)s %(value)s: %(lower)s%(text)s",
        field=field, value=_shown(field, given), lower=text[:1].lower(), text=text[1:],
    ), field)


def _refused_before(given: bytes | Mapping[str, Any]) -> str:
    """Return the reporter's reason why a record has no counts (USAGE_REFUSED); "" where it gives none."""
    try:
        attributes = (msgspec.json.decode(given) if isinstance(given, bytes) else given)["attributes"]
        return str(attributes.get(USAGE_REFUSED, ""))[:512]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError, TypeError, AttributeError):
        return ""


def _shown(field: str, given: bytes | Mapping[str, Any]) -> str:
    """Return the refused value as the sender wrote it, shortened; "" for tags, of which only an allow-list may be kept."""
    if field.partition("[")[0].partition(".")[0] == "tags":
        return ""
    try:
        value: Any = msgspec.json.decode(given) if isinstance(given, bytes) else given
        for step in field.split("."):
            value = value[step]
        return shown(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError, TypeError, ValueError):
        return ""


def shown(value: object) -> str:
    """Return a value for an error message: its JSON, cut to 80 characters; half a surrogate pair as its escape."""
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:
        text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: Decimal | None) -> str | None:
    return None if value is None else format(value.normalize(), "f")


def microseconds(instant: datetime) -> int:
    """Return the microseconds since 2000, as PostgreSQL counts time."""
    delta = instant - EARLIEST
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _ordered(mapping: Mapping[str, Any] | None) -> bytes | None:
    return msgspec.json.encode(mapping, order="deterministic") if mapping else None


_pack = msgspec.msgpack.Encoder().encode


def _digest(parts: tuple[object, ...], size: int) -> bytes:
    return blake2b(_pack(parts), digest_size=size).digest()
