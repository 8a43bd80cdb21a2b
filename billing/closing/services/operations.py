"""Operations: the intent lives in the database, so that neither the broker nor any worker can lose it.

A runner holds the advisory lock of (kind, month): PostgreSQL releases it when the runner dies,
and each operation is itself idempotent. A wake-up that the broker loses is sent again by the scheduler.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zlib import crc32

from django.db import transaction
from django.utils import timezone

from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.snapshots import month_assess
from billing.invoices.issued import NotIssuedError
from billing.invoices.models import Operation
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import PeriodError
from billing.runtime.advisory_lock import advisory_lock
from billing.runtime.progress import ProgressCallback, no_progress, report_to_all, saved_with_operation
from billing.tenancy.actors import Actor, actor_kept
from billing.usage.archive.places import UnreadableArchiveError
from metering.messages import Message

OPERATION_LOCK = 0x4F50


def _actor(operation: Operation) -> str:
    return actor_kept(operation.requested_by, operation.parameters.get("acting"))


def _close(operation: Operation, now: datetime, report_progress: ProgressCallback) -> Message:
    closed = period_close(month=operation.month, actor=_actor(operation), now=now, report_progress=report_progress)
    if not closed.changed:
        return Message("was closed already")
    if closed.invoices == 1:
        return Message("1 invoice drafted")
    return Message("%(n)s invoices drafted", n=closed.invoices)


def _issue(operation: Operation, now: datetime, report_progress: ProgressCallback) -> Message:
    issued = invoices_issue(month=operation.month, actor=_actor(operation), now=now, report_progress=report_progress)
    return Message("1 invoice issued") if issued == 1 else Message("%(n)s invoices issued", n=issued)


def _assess(operation: Operation, now: datetime, report_progress: ProgressCallback) -> Message:
    report_progress("assess", 0, 0)
    return month_assess(month=operation.month, now=now)


def _focus(operation: Operation, now: datetime, report_progress: ProgressCallback) -> Message:
    from billing.exports.focus.conformance import ConformanceError  # loads 50 MB of Arrow, which no other operation needs
    from billing.exports.services.focus import UnexplainedError
    from billing.exports.services.focus_rows import focus_make

    report_progress("focus", 0, 0)
    try:
        rows = focus_make(month=operation.month, now=now, report_progress=report_progress)
    except (NotIssuedError, UnexplainedError, ConformanceError) as error:
        raise PeriodError(error.message) from error
    return Message.counted("%(n)s row of FOCUS made", "%(n)s rows of FOCUS made", rows, n=rows)


KINDS: dict[str, Callable[[Operation, datetime, ProgressCallback], Message]] = {
    "close": _close, "issue": _issue, "assess": _assess, "focus": _focus,
}  # fmt: skip


def operation_request(
    *, kind: str, month: str, actor: str, wake: Callable[[int], None] | None = None, parameters: dict[str, Any] | None = None
) -> Operation:
    """Store an operation; `wake` is called with its id once that is committed."""
    if kind not in KINDS:
        raise ValueError(f"operation {kind!r} is none of {', '.join(KINDS)}")
    with transaction.atomic():
        kept = {**(parameters or {}), "acting": actor.facts} if isinstance(actor, Actor) else parameters or {}
        operation = Operation.objects.create(kind=kind, month=month, requested_by=actor, parameters=kept)
        if wake is not None:
            transaction.on_commit(lambda: wake(operation.pk))
    return operation


def operations_pending() -> list[int]:
    """Return the ids of pending operations, oldest first."""
    return list(Operation.objects.filter(status=Operation.Status.PENDING).order_by("id").values_list("id", flat=True))


def operation_run(*, operation_id: int, wait: bool = True, report_progress: ProgressCallback = no_progress) -> Operation:
    """Run an operation unless it is done; with `wait=False` leave it to a process that already runs it. Its row and
    `report_progress` get the progress.

    A refusal of the close is an outcome, with its `message`; any other error leaves the operation pending for the next
    runner and is raised.
    """
    operation = Operation.objects.get(pk=operation_id)
    # PostgreSQL takes a signed integer of 32 bits
    key = crc32(f"{operation.kind} {operation.month}".encode()) - 2**31
    with advisory_lock(OPERATION_LOCK, key, wait=wait) as claimed:
        operation.refresh_from_db()
        # another process may have finished it while this one waited for the lock
        if not claimed or operation.status != Operation.Status.PENDING:
            return operation
        Operation.objects.filter(pk=operation.pk).update(attempts=operation.attempts + 1)
        try:
            with saved_with_operation(operation.pk) as kept:
                message = KINDS[operation.kind](operation, timezone.now(), report_to_all(kept, report_progress))
            status = Operation.Status.DONE
        except CloseRefusedError as refusal:
            message, status = refusal.message, Operation.Status.REFUSED
        except (PeriodError, UnreadableArchiveError) as error:
            message, status = error.message, Operation.Status.FAILED
        parameters = {**operation.parameters, "message": message.as_json()}
        Operation.objects.filter(pk=operation.pk).update(
            status=status, message=message, parameters=parameters, finished_at=timezone.now()
        )
    operation.refresh_from_db()
    return operation
