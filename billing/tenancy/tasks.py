"""Background tasks of tenancy."""

from celery import shared_task
from django.utils import timezone

from billing.tenancy import audit_anchors, services


@shared_task
def anchors_send() -> int:
    """Send the head of the audit log to places that are due; return how many accepted it."""
    return audit_anchors.anchors_send(now=timezone.now())


@shared_task
def cost_centers_refresh() -> int:
    """Store the current cost centre of teams with dated ones; return the number of changes."""
    return services.cost_centers_refresh(now=timezone.now())
