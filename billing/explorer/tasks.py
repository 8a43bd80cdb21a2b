"""Background tasks of the explorer. Each may run at any time, concurrently and repeatedly."""

from celery import shared_task
from django.utils import timezone

from billing.explorer import services
from billing.explorer.services.reports import reports_send as send_due
from billing.tenancy.models import BillingSetup


@shared_task
def cubes_refresh() -> int:
    """Build the cubes of months that are missing or outdated; return their number."""
    return services.cubes_refresh()


@shared_task
def reports_send() -> int:
    """Send the reports that are due; return their number."""
    return send_due(now=timezone.now()) if BillingSetup.objects.exists() else 0
