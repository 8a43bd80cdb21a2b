"""Quarantine: records that could not enter the ledger are kept, shown, and block the close until a person decides."""

from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import blake2b

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from billing.tenancy.audit import audit_record
from billing.usage.models import Close, QuarantinedRecord
from billing.usage.services.outcome import Refusal, Reporter
from billing.usage.services.tags import tags_removed
from metering.messages import Message, UserError
from metering.raw_json import readable_members
from metering.record_checks import EARLIEST, LATEST

MAX_KEPT_BYTES = 1_048_576
INSTANT_FIELDS = ("time", "started_at", "start", "from")


class DismissalError(UserError, ValueError):
    """Error of a dismissal without a reason, or of a record that was replayed."""

    code = "quarantine_dismissal"


def quarantine_add(*, reporter: Reporter, refusals: Iterable[Refusal]) -> None:
    """Store refused records, with allowed tags only; the same record sent again only raises its counter."""
    rows = {}
    for refusal in tags_removed(refusals):
        same = (reporter.door.encode(), refusal.reason.encode(), refusal.same_as or refusal.raw)
        rows[blake2b(b"\0".join(same), digest_size=16).digest()] = refusal
    if not rows:
        return
    closed = closed_windows()
    with connection.cursor() as cursor:
        # sorted: concurrent reports of the same records do not deadlock
        for digest, refusal in sorted(rows.items()):
            now = timezone.now()
            cursor.execute(
                """INSERT INTO usage_quarantinedrecord (door, reporter, reason, error, key, record, digest, at,
                       received_at, times_received, status, resolved_by, resolution, corrected)
                   VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 1, 'open', '', '', '')
                   ON CONFLICT (digest) DO UPDATE SET times_received = usage_quarantinedrecord.times_received + 1""",
                [
                    reporter.door, reporter.name[:512], refusal.reason, _text(refusal.error), _text(refusal.key),
                    _text(refusal.raw[:MAX_KEPT_BYTES].decode(errors="backslashreplace")), digest,
                    still_open(_instant(refusal.raw) or now, closed), now,
                ],
            )  # fmt: skip


def quarantine_dismiss(*, record_id: int, actor: str, resolution: str) -> QuarantinedRecord:
    """Dismiss a quarantined record as not being usage; it stays readable with the actor and the reason."""
    if not resolution.strip():
        raise DismissalError(Message("a dismissal needs a reason"))
    with transaction.atomic():
        return _dismiss(QuarantinedRecord.objects.select_for_update().get(pk=record_id), actor, resolution)


def _dismiss(record: QuarantinedRecord, actor: str, resolution: str) -> QuarantinedRecord:
    if record.status == QuarantinedRecord.Status.REPLAYED:
        raise DismissalError(Message(
            "record %(n)s was taken into the ledger on %(at)s by %(actor)s",
            n=record.pk, at=record.resolved_at, actor=record.resolved_by,
        ))
    record.status = QuarantinedRecord.Status.DISMISSED
    record.resolved_by, record.resolution, record.resolved_at = actor, resolution, timezone.now()
    record.save(update_fields=["status", "resolved_by", "resolution", "resolved_at"])
    audit_record(
        actor=actor, action="quarantine_dismiss", subject=f"{record.door} {record.key}", detail={"reason": resolution}
    )
    return record


def closed_windows() -> list[tuple[datetime, datetime]]:
    """Return [start, end) of every closed month, in order."""
    return sorted(Close.objects.filter(withdrawn_at=None).values_list("start", "end"))


def still_open(instant: datetime, closed: list[tuple[datetime, datetime]]) -> datetime:
    """Return the instant, or the first later one not yet billed: late usage blocks the close that would bill it."""
    for start, end in closed:
        if start <= instant < end:
            instant = end
    return instant


def _text(value: str) -> str:
    """Return text that PostgreSQL stores: without NUL and without lone surrogates."""
    return value.replace("\0", "\\u0000").encode(errors="backslashreplace").decode()


def _instant(raw: bytes) -> datetime | None:
    """Return the record's own instant, so that the exception is in the month it concerns; None if it has none."""
    fields = dict(readable_members(raw))
    for name in INSTANT_FIELDS:
        value = fields.get(name)
        if isinstance(value, str):
            try:
                instant = msgspec.convert(value, datetime)
            except (msgspec.ValidationError, UnicodeEncodeError):  # a lone surrogate is in no instant
                continue
            if instant.tzinfo and EARLIEST <= instant < LATEST:
                return instant.astimezone(UTC)  # PostgreSQL refuses offsets of 16 hours and more
    return None
