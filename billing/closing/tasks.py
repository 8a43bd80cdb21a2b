"""Celery tasks of operations: a message is only a wake-up, its loss costs seconds, its repetition nothing."""

import logging

from celery import shared_task
from django.utils import timezone
from kombu.exceptions import OperationalError

from billing.closing.services.operations import operation_run, operations_pending
from billing.closing.services.snapshots import snapshots_refresh
from billing.invoices.services.mails import mails_send

logger = logging.getLogger(__name__)


@shared_task
def operation_execute(operation_id: int) -> str:
    """Run one operation, unless another process runs it or it is done."""
    return operation_run(operation_id=operation_id, wait=False).status


@shared_task
def operations_resume() -> int:
    """Wake every pending operation again: whatever a lost broker or a killed worker left behind."""
    pending = operations_pending()
    for operation_id in pending:
        operation_execute.delay(operation_id)
    return len(pending)


@shared_task
def documents_send() -> int:
    """Send the mails of documents that are due; returns how many the server took."""
    return mails_send(now=timezone.now())


@shared_task
def months_assess() -> int:
    """Rate large months again for their pages, if they have changed; returns how often it did."""
    return snapshots_refresh()


def operation_wake(operation_id: int) -> None:
    """Notify a worker at once if the broker can be reached; otherwise the scheduler does."""
    try:
        operation_execute.delay(operation_id)
    except OperationalError:
        logger.warning("the broker cannot be reached: operation %s waits for the scheduler", operation_id)
