"""Background work of tenancy."""

from celery import shared_task
from django.utils import timezone

from billing.tenancy import audit_anchors, services


@shared_task
def anchors_send() -> int:
    """Send the head of the audit log where it is time; returns how many places took it."""
    return audit_anchors.anchors_send(now=timezone.now())


@shared_task
def cost_centers_refresh() -> int:
    """Show the cost centre of now for teams that have dated ones; returns how many changed."""
    return services.cost_centers_refresh(now=timezone.now())
