"""Background tasks of the inbox. Each may run at any time, concurrently and repeatedly."""

from celery import shared_task
from django.utils import timezone

from billing.inbox import services


@shared_task
def findings_refresh() -> int:
    """Check the open months for blockers; return the number of open months."""
    return services.findings_refresh(now=timezone.now())


@shared_task
def digests_send() -> int:
    """Send the digests of the day that are due; return their number."""
    return services.digests_send(now=timezone.now())
