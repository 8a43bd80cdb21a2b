"""Out of quarantine: a refused record, corrected or as it is, through the same code as at the door it came to.

Somebody decides, says why, and answers for it in the audit log. A corrected record may be written in the form in which
quarantine shows it, or as the native record of the contract. It is taken or refused like any other; only what it says
of time and source is not held against it, because a person has looked at it.
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
from metering.records import (
    EfficiencySample,
    GpuAllocation,
    NodeCapacity,
    RecordError,
    TokenUsage,
    record_error,
    refuse_nul,
)

MAX_RECORD_BYTES = 1_048_576
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, RecordError)


class ReplayError(ValueError):
    """A quarantined record that cannot be replayed, with the reason; it stays as it was."""


@dataclass(frozen=True, slots=True)
class _Door:
    ingest: Callable[..., IngestOutcome]
    kind: type[Any]


_DOORS = {
    "tokens": _Door(tokens_ingest, TokenUsage),
    "gpu": _Door(allocations_ingest, GpuAllocation),
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
    reporter = Reporter(f"{actor} for {entry.reporter}", entry.door)
    from_file = {"from_file": True} if entry.door == "import_usage gpu" else {}
    return door.ingest(records=[(0, record, raw)], rejected=(), reporter=reporter, now=now, **from_file)


def _decoded(kind: type[Any], door: str, raw: bytes, now: datetime) -> Any:
    """The record of these bytes: native, or in the form of the gateway's door that it came to.  Raises UNREADABLE."""
    translate = _translator(door, now)
    if translate is not None:
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and "consumer" not in fields:
            return translate(fields)
    record = msgspec.json.decode(raw, type=kind)
    refuse_nul(record)
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
