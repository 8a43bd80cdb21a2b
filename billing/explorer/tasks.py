"""Background work of the explorer. Each task may run at any time, at once and again."""

from celery import shared_task
from django.utils import timezone

from billing.explorer import services
from billing.explorer.services.reports import reports_send as send_due
from billing.tenancy.models import BillingSetup


@shared_task
def cubes_refresh() -> int:
    """Make the sums of months that are missing or old; returns how many."""
    return services.cubes_refresh()


@shared_task
def reports_send() -> int:
    """Send the reports that are due; returns how many were taken."""
    return send_due(now=timezone.now()) if BillingSetup.objects.exists() else 0
