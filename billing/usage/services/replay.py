"""Out of quarantine: a refused record, corrected or as it is, through the same code as at the door it came to.

Somebody decides, says why, and answers for it in the audit log. A corrected record may be written in the form in which
quarantine shows it, or as the native record of the contract. It is taken or refused like any other; only what it says
of time and source is not held against it, because a person has looked at it.

A corrected record keeps its key: its sender may send the right one itself, which then is a duplicate or a conflict and is
never billed beside it. Only a part of the key that is no name may change, for nothing can ever arrive under it; and the key
of a conflict, which the ledger has already.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.usage.models import QuarantinedRecord
from billing.usage.services.allocations import allocations_ingest
from billing.usage.services.capacity import capacity_ingest
from billing.usage.services.efficiency import efficiency_ingest
from billing.usage.services.outcome import IngestOutcome, Reporter
from billing.usage.services.tokens import tokens_ingest
from metering.gateways import cloudevents, lago, litellm
from metering.names import name_problem
from metering.raw_json import readable_members
from metering.records import (
    EfficiencySample,
    GpuAllocation,
    NodeCapacity,
    RecordError,
    TokenUsage,
    check_record,
    record_error,
)

MAX_RECORD_BYTES = 1_048_576
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, RecordError)


class ReplayError(ValueError):
    """A quarantined record that cannot be replayed, with the reason; it stays as it was."""


@dataclass(frozen=True, slots=True)
class _Door:
    ingest: Callable[..., IngestOutcome]
    kind: type[Any]
    key: tuple[str, ...] = ()


_DOORS = {
    "tokens": _Door(tokens_ingest, TokenUsage, ("source", "id")),
    "gpu": _Door(allocations_ingest, GpuAllocation, ("allocation_id",)),
    "capacity": _Door(capacity_ingest, NodeCapacity),
    "efficiency": _Door(efficiency_ingest, EfficiencySample),
}
_KIND_OF_DOOR = {
    "usage/tokens": "tokens", "events": "tokens", "events/batch": "tokens", "usage/litellm": "tokens",
    "usage/gpu-allocations": "gpu", "usage/capacity": "capacity", "usage/efficiency": "efficiency",
}  # fmt: skip


def quarantine_replay(
    *, record_id: int, actor: str, reason: str, now: datetime, corrected: str | None = None
) -> QuarantinedRecord:
    """Take a quarantined record, `corrected` or as it came, into the ledger; it is marked with who, when, why and what.

    Raises ReplayError if it is not open, or is refused again; then nothing has changed. Raises
    QuarantinedRecord.DoesNotExist.
    """
    if not reason.strip():
        raise ReplayError("a replay needs a reason")
    with transaction.atomic():
        entry = QuarantinedRecord.objects.select_for_update().get(pk=record_id)
        if entry.status != QuarantinedRecord.Status.OPEN:
            raise ReplayError(f"record {record_id} is {entry.status} since {entry.resolved_at} by {entry.resolved_by}")
        text = entry.record if corrected is None else corrected
        outcome = _ingest(entry, _raw(text), actor, now)
        if outcome.refusals:
            raise ReplayError(f"refused again: {outcome.refusals[0].error}")
        entry.status = QuarantinedRecord.Status.REPLAYED
        entry.corrected = "" if text == entry.record else text
        entry.resolved_by, entry.resolution, entry.resolved_at = actor[:200], reason, now
        entry.save(update_fields=["status", "corrected", "resolved_by", "resolution", "resolved_at"])
        audit_record(
            actor=actor, action="quarantine_replay", subject=f"{entry.door} {entry.key}",
            detail={"record": entry.pk, "reason": reason, "corrected": bool(entry.corrected),
                    "new": outcome.accepted == 1},
        )  # fmt: skip
    return entry


def _raw(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_RECORD_BYTES:
        raise ReplayError(f"the record has {len(raw)} bytes, the limit is {MAX_RECORD_BYTES}")
    return raw


def _ingest(entry: QuarantinedRecord, raw: bytes, actor: str, now: datetime) -> IngestOutcome:
    kind = _KIND_OF_DOOR.get(entry.door) or entry.door.removeprefix("import_usage ")
    door = _DOORS.get(kind)
    if door is None:
        raise ReplayError(f"nothing is known of door {entry.door!r}: dismiss the record and report it again")
    try:
        record = _decoded(door.kind, entry.door, raw, now)
    except UNREADABLE as error:
        raise ReplayError(f"the record is not valid: {record_error(error, raw)}") from error
    if entry.reason != QuarantinedRecord.Reason.CONFLICT:
        _refuse_other_key(entry, door.key, record)
    reporter = Reporter(f"{actor} for {entry.reporter}", entry.door)
    from_file = {"from_file": True} if entry.door == "import_usage gpu" else {}
    return door.ingest(records=[(0, record, raw)], rejected=(), reporter=reporter, now=now, **from_file)


def _refuse_other_key(entry: QuarantinedRecord, key: tuple[str, ...], record: Any) -> None:
    told = _key_as_it_came(entry)
    for field in key:
        names = told.get(field, set())
        if names and getattr(record, field) not in names:
            kept = " or ".join(sorted(map(repr, names)))
            raise ReplayError(
                f"the corrected record must keep its {field} {kept}: under another one, the right record sent again would "
                "be billed a second time"
            )


def _key_as_it_came(entry: QuarantinedRecord) -> dict[str, set[str]]:
    """What a record in quarantine says of its key, as far as those are names; of a field that stands twice, both."""
    members = readable_members(entry.record.encode())
    payload = dict(members).get("payload")
    if entry.door == "usage/litellm" and isinstance(payload, dict):
        members = [member for member in members if member[0] != "id"] + [("id", _payload_identity(payload))]
    told: dict[str, set[str]] = {}
    for field, value in members:
        if isinstance(value, str) and name_problem(value) is None:
            told.setdefault(field, set()).add(value)
    return told


def _payload_identity(payload: dict[str, Any]) -> str:
    """The id that a payload of LiteLLM becomes, empty where nobody can say."""
    try:
        return litellm.identity({"metadata": {}, **payload})
    except (RecordError, TypeError, AttributeError):
        return ""


def _decoded(kind: type[Any], door: str, raw: bytes, now: datetime) -> Any:
    """The record of these bytes: native, or in the form of the gateway's door that it came to.  Raises UNREADABLE."""
    translate = _translator(door, now)
    if translate is not None:
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and "consumer" not in fields:
            record = translate(fields)
            check_record(record, raw)
            return record
    record = msgspec.json.decode(raw, type=kind)
    check_record(record, raw)
    return record


def _translator(door: str, now: datetime) -> Callable[[dict[str, Any]], TokenUsage] | None:
    namings = settings.EVENT_NAMINGS
    if door == "usage/litellm":
        return partial(_redacted_payload, consumer=settings.LITELLM_CONSUMER)
    if door not in ("events", "events/batch"):
        return None
    event = partial(cloudevents.usage, namings=namings, now=now)
    of_lago = partial(lago.usage, namings=namings, now=now)
    return lambda fields: of_lago(fields) if "transaction_id" in fields else event(fields)


def _redacted_payload(fields: dict[str, Any], *, consumer: tuple[str, ...]) -> TokenUsage:
    """As quarantine keeps a payload of LiteLLM.  Raises RecordError where a part of that form is missing."""
    payload = fields.get("payload")
    if not isinstance(payload, dict) or not isinstance(payload.get("metadata"), dict):
        raise RecordError("payload with its metadata is missing: write the record as quarantine shows it", "payload")
    return litellm.usage({"source": None, "time": None, **fields}, consumer=consumer)
