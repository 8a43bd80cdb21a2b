"""Background work of usage."""

import logging

from celery import shared_task

from billing.usage import services

logger = logging.getLogger(__name__)


@shared_task
def rollups_fold() -> int:
    """Move appended deltas into the hourly roll-up."""
    return services.rollups_fold()


@shared_task
def sequences_fold() -> int:
    """Join the stretches of numbers that have arrived."""
    return services.sequences_fold()


@shared_task
def months_make() -> None:
    """Parts of the ledger for the months to come. One that is late costs nothing but the room of that month, later."""
    if missing := services.months_make():
        logger.warning("no part of the ledger for %s: it is read all the time, or too large", ", ".join(missing))
