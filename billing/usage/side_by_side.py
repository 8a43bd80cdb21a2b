"""Form of a quarantined record: its fields, each beside the ledger's value under the same key.

Typed values become a record again: text if the contract has text, else JSON. An empty field is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from billing.usage.models import EfficiencySample, EngineReading, GpuAllocation, NodeCapacity, QuarantinedRecord
from billing.usage.services.replay import ReplayError, native_record, record_kind
from billing.usage.store.records import record_stored
from metering import records
from metering.messages import Message
from metering.raw_json import readable_members
from metering.token_keys import token_key

DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)
ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
Values = dict[str, Any]


class Form(Enum):
    """Type of a field's input: a decimal may be text or a number."""

    TEXT = 1
    DECIMAL = 2
    JSON = 3


@dataclass(frozen=True, slots=True)
class RecordField:
    """Field of a record. `reported`, `stored`: display text, None if the record or the ledger has none.

    is_text: typed input is text, not JSON.
    """

    name: str
    reported: str | None
    stored: str | None
    is_text: bool
    differs: bool


def record_fields(entry: QuarantinedRecord, now: datetime, *, with_ledger: bool = True) -> list[RecordField] | None:
    """Return the fields of a record, then those of the contract that it lacks.

    None if it is no JSON object with unique keys, which can only be edited as text.  Raises UnreadableArchiveError if
    `with_ledger`.
    """
    raw = entry.record.encode()
    try:
        reported = DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(reported, dict) or len(readable_members(raw)) != len(reported):
        return None
    kind, native = record_kind(entry), native_record(entry, now)
    stored: Values = {}
    if native is not None:
        as_native = _values(native)
        if not as_native.keys() >= reported.keys():  # in a gateway's form: shown in native form, which a replay accepts too
            reported = as_native
        if with_ledger and entry.reason == QuarantinedRecord.Reason.CONFLICT:
            stored = stored_values(native)
    elif kind is None or not reported.keys() & _forms(kind).keys():
        kind = None
    forms = _forms(kind) if kind else {}
    names = [*reported, *(name for name in forms if name not in reported)]
    return [_field(name, reported, stored, forms.get(name)) for name in names]


def _field(name: str, reported: Values, stored: Values, form: Form | None) -> RecordField:
    value, in_ledger = reported.get(name), stored.get(name)
    as_reported = form is None or (form is Form.DECIMAL and name in reported)
    return RecordField(
        name, _shown(value) if name in reported else None, None if in_ledger is None else _shown(in_ledger),
        isinstance(value, str) if as_reported else form is Form.TEXT,
        bool(stored) and _plain(value, form) != _plain(in_ledger, form),
    )  # fmt: skip


def corrected_text(fields: Sequence[RecordField], typed: Mapping[str, str]) -> str | None:
    """Return the record with the typed values, by field name; None if nothing was changed.  Raises ReplayError."""
    if all(typed.get(field.name, "") == (field.reported or "") for field in fields):
        return None
    found = {field.name: _typed(field, typed[field.name]) for field in fields if typed.get(field.name, "") != ""}
    return ENCODER.encode(found).decode()


def _typed(field: RecordField, text: str) -> Any:
    if field.is_text and not text.startswith("{"):
        return text
    try:
        return DECODER.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReplayError(Message(
            "%(name)s %(text)s: write a number, true, false, null or JSON", name=field.name, text=repr(text[:80])
        )) from error


def stored_values(native: Any) -> Values:
    """Return the ledger's values under the key of a record, by field name; empty if it has none."""
    for kind, read in READERS.items():
        if isinstance(native, kind):
            return read(native)
    return {}


def _tokens(record: records.TokenUsage) -> Values:
    return record_stored(token_key(record.source, record.id)) or {}


def _allocation(record: records.GpuAllocation) -> Values:
    row: Any = GpuAllocation.objects.filter(allocation_id=record.allocation_id).values().first()
    if row is None:
        return {}
    workload = {"kind": row["workload_kind"], "name": row["workload_name"]} if row["workload_name"] else None
    facts: Values = row["facts"]
    return {**facts, **{name: row[name] for name in _forms(records.GpuAllocation) if name in row}, "workload": workload}


def _capacity(record: records.NodeCapacity) -> Values:
    key = {name: getattr(record, name) for name in ("cluster", "node", "resource", "start")}
    row: Any = NodeCapacity.objects.filter(**key).values().first() or {}
    return {("from" if name == "start" else name): row[name] for name in row if name not in ("id", "content_sha256")}


def _sample(record: records.EfficiencySample) -> Values:
    values = _values(record)
    workload = values.get("workload")
    named = workload if isinstance(workload, dict) else {"name": workload or "", "kind": ""}
    row: Any = EfficiencySample.objects.filter(
        cluster=record.cluster, pod_uid=record.pod_uid or "", workload=named["name"], workload_kind=named["kind"],
        start=record.start, end=record.end,
    ).values().first()  # fmt: skip
    return {name: row[name] for name in _forms(records.EfficiencySample) if name in row} if row else {}


def _reading(record: records.EngineReading) -> Values:
    key = {name: getattr(record, name) for name in ("source", "replica", "model", "time")}
    row: Any = EngineReading.objects.filter(**key).values().first() or {}
    return {name: row[name] for name in _forms(records.EngineReading) if name in row}


READERS: Final[Mapping[type[Any], Any]] = {
    records.TokenUsage: _tokens, records.GpuAllocation: _allocation, records.NodeCapacity: _capacity,
    records.EfficiencySample: _sample, records.EngineReading: _reading,
}  # fmt: skip


def _values(native: Any) -> Values:
    """Return the non-null fields of a record, by their names on the wire."""
    found: Values = DECODER.decode(ENCODER.encode(native))
    return {name: value for name, value in found.items() if value is not None}


def _forms(kind: type[Any]) -> dict[str, Form]:
    """Return the input type of each field of a kind of record, by its name on the wire."""
    info: Any = msgspec.inspect.type_info(kind)
    return {field.encode_name: _form(field.type) for field in info.fields}


def _form(kind: Any) -> Form:
    parts = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    plain = [part.type if isinstance(part, msgspec.inspect.Metadata) else part for part in parts]
    if any(isinstance(part, msgspec.inspect.StrType | msgspec.inspect.DateTimeType) for part in plain):
        return Form.TEXT
    return Form.DECIMAL if any(isinstance(part, msgspec.inspect.DecimalType) for part in plain) else Form.JSON


def _shown(value: Any) -> str:
    """Format a value: text and instants bare, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return ENCODER.encode(value).decode()


def _plain(value: Any, form: Form | None) -> Any:
    """Return a value for comparison: empty or false is None, an instant is independent of zone, a decimal is a number."""
    if value in ("", {}) or value is None or value is False:
        return None
    if form is Form.DECIMAL and isinstance(value, str | int | Decimal):
        return Decimal(value)
    if isinstance(value, str):
        try:
            return msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            return value
    return value
