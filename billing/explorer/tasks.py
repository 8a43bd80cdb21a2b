"""Background work of the explorer. The task may run at any time, at once and again."""

from celery import shared_task

from billing.explorer import services


@shared_task
def cubes_refresh() -> int:
    """Make the sums of months that are missing or old; returns how many."""
    return services.cubes_refresh()
