"""Background work of the inbox. Each task may run at any time, at once and again."""

from celery import shared_task
from django.utils import timezone

from billing.inbox import services


@shared_task
def findings_refresh() -> int:
    """Ask the close check what blocks the open months; returns how many are open."""
    return services.findings_refresh(now=timezone.now())


@shared_task
def digests_send() -> int:
    """Send the digests of the day that are due; returns how many were sent."""
    return services.digests_send(now=timezone.now())
