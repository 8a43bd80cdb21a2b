"""Background work of usage."""

from celery import shared_task

from billing.usage import services


@shared_task
def rollups_fold() -> int:
    """Move appended deltas into the hourly roll-up."""
    return services.rollups_fold()


@shared_task
def sequences_fold() -> int:
    """Join the stretches of numbers that have arrived."""
    return services.sequences_fold()
