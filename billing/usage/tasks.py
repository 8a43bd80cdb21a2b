"""Background tasks of usage."""

import logging

from celery import shared_task

from billing.usage import services

logger = logging.getLogger(__name__)


@shared_task
def rollups_fold() -> int:
    """Move appended deltas into the roll-ups."""
    return services.rollups_fold()


@shared_task
def sequences_fold() -> int:
    """Merge ranges of arrived sequence numbers."""
    return services.sequences_fold()


@shared_task
def months_make() -> None:
    """Create parts of the ledger for the coming months; a late part only makes that month's rows costlier to remove."""
    if missing := services.months_make():
        logger.warning("no part of the ledger for %s: it is read all the time, or too large", ", ".join(missing))
