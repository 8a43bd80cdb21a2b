"""Background work of usage."""

from celery import shared_task

from billing.usage.services import rollups_fold as fold


@shared_task
def rollups_fold() -> int:
    """Move appended deltas into the hourly roll-up."""
    return fold()
