"""Replay out of quarantine: a refused record, corrected or unchanged, through the code of its original endpoint.

A person decides, gives the reason, and is named in the audit log. A corrected record may be written in the form shown by
quarantine, or as the native record of the contract. It is stored or refused like any other; only the limits on time and
source do not apply, because a person has checked it.

A corrected record keeps its key: if its sender later sends the right one, it is a duplicate or a conflict and is never
billed twice. Only a part of the key that is no valid name may change, since no record can arrive under it; and the key of a
conflict, which the ledger has already.
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
from billing.usage.services.allocations import ALTERED, OTHER_CONTENT, allocation_refused, allocations_ingest
from billing.usage.services.capacity import capacity_ingest, capacity_taken
from billing.usage.services.efficiency import efficiency_ingest, sample_taken
from billing.usage.services.engines import engine_readings_ingest, reading_taken
from billing.usage.services.outcome import IngestOutcome, Reporter, last_instant
from billing.usage.services.quarantine import DismissalError, quarantine_dismiss
from billing.usage.services.token_batch import key_taken
from billing.usage.services.tokens import tokens_ingest
from metering.gateways import cloudevents, lago, litellm, otlp
from metering.messages import Message, UserError
from metering.names import name_problem
from metering.raw_json import readable_members
from metering.record_checks import RecordError
from metering.records import (
    EfficiencySample,
    EngineReading,
    GpuAllocation,
    NodeCapacity,
    TokenUsage,
    check_record,
    record_error,
)

MAX_RECORD_BYTES = 1_048_576
MOST_AT_ONCE = 1_000
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, RecordError)


class ReplayError(UserError, ValueError):
    """Error of a quarantined record that cannot be replayed, with the reason; the record is unchanged."""

    code = "quarantine_replay"


@dataclass(frozen=True, slots=True)
class _Door:
    ingest: Callable[..., IngestOutcome]
    kind: type[Any]
    key: tuple[str, ...] = ()


_TOKENS = _Door(tokens_ingest, TokenUsage, ("source", "id"))
_GPU = _Door(allocations_ingest, GpuAllocation, ("allocation_id",))
_CAPACITY = _Door(capacity_ingest, NodeCapacity)
_EFFICIENCY = _Door(efficiency_ingest, EfficiencySample)
_ENGINE = _Door(engine_readings_ingest, EngineReading)
_ENDPOINTS = {
    "usage/tokens": _TOKENS, "events": _TOKENS, "events/batch": _TOKENS, "usage/litellm": _TOKENS,
    "usage/kong": _TOKENS, "usage/apisix": _TOKENS, "v1/traces": _TOKENS, "v1/logs": _TOKENS,
    "usage/gpu-allocations": _GPU, "usage/capacity": _CAPACITY, "usage/efficiency": _EFFICIENCY,
    "usage/engine-counters": _ENGINE,
    "import_usage tokens": _TOKENS, "import_usage gpu": _GPU, "import_usage capacity": _CAPACITY,
    "import_usage efficiency": _EFFICIENCY, "import_usage engine": _ENGINE,
}  # fmt: skip


def quarantine_replay(
    *, record_id: int, actor: str, reason: str, now: datetime, corrected: str | None = None
) -> QuarantinedRecord:
    """Replay a quarantined record, `corrected` or unchanged, into the ledger; it keeps actor, time, reason and text.

    Raises ReplayError if it is not open, or is refused again; then nothing has changed. Raises
    QuarantinedRecord.DoesNotExist.
    """
    if not reason.strip():
        raise ReplayError(Message("a replay needs a reason"))
    with transaction.atomic():
        entry = QuarantinedRecord.objects.select_for_update().get(pk=record_id)
        if entry.status != QuarantinedRecord.Status.OPEN:
            raise ReplayError(Message(
                "record %(number)s is %(status)s since %(resolved_at)s by %(resolved_by)s",
                number=record_id, status=entry.status, resolved_at=entry.resolved_at, resolved_by=entry.resolved_by,
            ))
        text = entry.record if corrected is None else corrected
        outcome = _ingest(entry, _raw(text), actor, now)
        if outcome.refusals:
            raise ReplayError(Message("refused again: %(error)s", error=outcome.refusals[0].error))
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


def record_kind(entry: QuarantinedRecord) -> type[Any] | None:
    """Return the record type of the endpoint, None for an endpoint that no longer exists."""
    endpoint = _ENDPOINTS.get(entry.door)
    return None if endpoint is None else endpoint.kind


def native_record(entry: QuarantinedRecord, now: datetime) -> Any:
    """Return the record in native form; None if its bytes are not valid."""
    endpoint = _ENDPOINTS.get(entry.door)
    if endpoint is None:
        return None
    try:
        return _decoded(endpoint.kind, entry.door, entry.record.encode(), now)
    except UNREADABLE:
        return None


def quarantine_decide_all(
    *, door: str, reporter: str, reason: str, replay: bool, why: str, actor: str, now: datetime
) -> tuple[int, Message | None]:
    """Replay unchanged, or dismiss, up to MOST_AT_ONCE open records of one cause, each in its own transaction.

    Returns their number, and the first refusal among those refused again. Raises ReplayError if none could be decided.
    """
    rows = QuarantinedRecord.objects.filter(
        status=QuarantinedRecord.Status.OPEN, door=door, reporter=reporter, reason=reason
    )
    done, refused = 0, None
    for pk in list(rows.order_by("id").values_list("pk", flat=True)[:MOST_AT_ONCE]):
        try:
            if replay:
                quarantine_replay(record_id=pk, actor=actor, reason=why, now=now)
            else:
                quarantine_dismiss(record_id=pk, actor=actor, resolution=why)
        except (ReplayError, DismissalError) as error:
            refused = refused or error.message
        else:
            done += 1
    if not done:
        raise ReplayError(refused or Message("no such record waits any more"))
    return done, refused


def refusal_of(entry: QuarantinedRecord, now: datetime) -> str:
    """Return the reason of a quarantine: a translatable message if its bytes give it again, else the stored English."""
    endpoint, raw = _ENDPOINTS.get(entry.door), entry.record.encode()
    if endpoint is None:
        return entry.error
    try:
        record = _decoded(endpoint.kind, entry.door, raw, now)
    except UNREADABLE as error:
        found = [record_error(error, raw).message]
    else:
        if entry.reason == QuarantinedRecord.Reason.FUTURE:
            field, instant = last_instant(record)
            return Message("%(field)s %(time)s lies in the future", field=field, time=instant.isoformat())
        found = _conflicts(entry.key, record)
    return next((message for message in found if message == entry.error), entry.error)


def _conflicts(key: str, record: Any) -> list[Message]:
    """Return the possible refusals of a record whose key is stored with other content."""
    if isinstance(record, TokenUsage):
        return [key_taken(record)]
    if isinstance(record, GpuAllocation):
        return [allocation_refused(record, why) for why in (OTHER_CONTENT, ALTERED)]
    if isinstance(record, EngineReading):
        return [reading_taken(key)]
    return [capacity_taken(key) if isinstance(record, NodeCapacity) else sample_taken(key)]


def _raw(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_RECORD_BYTES:
        raise ReplayError(Message(
            "the record has %(size)s bytes, the limit is %(most)s", size=len(raw), most=MAX_RECORD_BYTES
        ))
    return raw


def _ingest(entry: QuarantinedRecord, raw: bytes, actor: str, now: datetime) -> IngestOutcome:
    endpoint = _ENDPOINTS.get(entry.door)
    if endpoint is None:
        raise ReplayError(Message(
            "endpoint %(door)s is unknown: dismiss the record and report it again", door=repr(entry.door)
        ))
    try:
        record = _decoded(endpoint.kind, entry.door, raw, now)
    except UNREADABLE as error:
        raise ReplayError(Message("the record is not valid: %(error)s", error=record_error(error, raw))) from error
    if entry.reason != QuarantinedRecord.Reason.CONFLICT:
        _refuse_other_key(entry, endpoint.key, record)
    # without source and future limit: a person has checked both
    reporter = Reporter(f"{actor} for {entry.reporter}", entry.door)
    from_file = {"from_file": True} if entry.door == "import_usage gpu" else {}
    return endpoint.ingest(records=[(0, record, raw)], rejected=(), reporter=reporter, now=now, **from_file)


def _refuse_other_key(entry: QuarantinedRecord, key: tuple[str, ...], record: Any) -> None:
    reported = _key_as_it_came(entry)
    for field in key:
        names = reported.get(field, set())
        if names and getattr(record, field) not in names:
            kept = " or ".join(sorted(map(repr, names)))
            raise ReplayError(Message(
                "the corrected record must keep its %(field)s %(kept)s: under another one, the right record sent again "
                "would be billed a second time",
                field=field, kept=kept,
            ))


def _key_as_it_came(entry: QuarantinedRecord) -> dict[str, set[str]]:
    """Return the values of the key fields in a quarantined record that are valid names; of a repeated field, all."""
    members = readable_members(entry.record.encode())
    payload = dict(members).get("payload")
    if entry.door == "usage/litellm" and isinstance(payload, dict):
        members = [member for member in members if member[0] != "id"] + [("id", _payload_identity(payload))]
    if entry.door in ("v1/traces", "v1/logs"):
        trace, span = (dict(members).get(name) for name in ("trace", "span"))
        members = [*members, ("id", otlp.identity(trace, span))] if trace and span else members
    reported: dict[str, set[str]] = {}
    for field, value in members:
        if isinstance(value, str) and name_problem(value) is None:
            reported.setdefault(field, set()).add(value)
    return reported


def _payload_identity(payload: dict[str, Any]) -> str:
    """Return the id of a LiteLLM payload, "" if it cannot be derived."""
    try:
        return litellm.identity({"metadata": {}, **payload})
    except (RecordError, TypeError, AttributeError):
        return ""


def _decoded(kind: type[Any], endpoint: str, raw: bytes, now: datetime) -> Any:
    """Return the record decoded from native bytes, or from the form of its gateway's endpoint.  Raises UNREADABLE."""
    translate = _translator(endpoint, now)
    if translate is not None:
        fields = msgspec.json.decode(raw)
        # a native record has a consumer, a gateway's form has none
        if isinstance(fields, dict) and "consumer" not in fields:
            record = translate(fields)
            check_record(record, raw)
            return record
    record = msgspec.json.decode(raw, type=kind)
    check_record(record, raw)
    return record


def _translator(endpoint: str, now: datetime) -> Callable[[dict[str, Any]], TokenUsage] | None:
    namings = settings.EVENT_NAMINGS
    if endpoint == "usage/litellm":
        return partial(_redacted_payload, consumer=settings.LITELLM_CONSUMER)
    if endpoint in ("v1/traces", "v1/logs"):
        return partial(otlp.usage, consumers=settings.OTLP_CONSUMERS)
    if endpoint not in ("events", "events/batch"):
        return None
    event = partial(cloudevents.usage, namings=namings, now=now)
    of_lago = partial(lago.usage, namings=namings, now=now)
    return lambda fields: of_lago(fields) if "transaction_id" in fields else event(fields)


def _redacted_payload(fields: dict[str, Any], *, consumer: tuple[str, ...]) -> TokenUsage:
    """Return the record of a LiteLLM payload as quarantine keeps it.  Raises RecordError if a part is missing."""
    payload = fields.get("payload")
    if not isinstance(payload, dict) or not isinstance(payload.get("metadata"), dict):
        raise RecordError(Message(
            "payload with its metadata is missing: write the record as quarantine shows it"
        ), "payload")
    return litellm.usage({"source": None, "time": None, **fields}, consumer=consumer)
