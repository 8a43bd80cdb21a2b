"""Background work of budgets. Every task may run at any time, concurrently and again: rows in the database keep order."""

from celery import shared_task
from django.utils import timezone

from billing.budgets import services
from billing.tenancy.models import BillingSetup


@shared_task
def budgets_evaluate() -> int:
    """Refresh budgets and fire alerts; returns how many alerts fired.

    A period that has no forecast yet (the installation has just started, a month has just begun) gets one afterwards:
    alerts about actual spending need none.
    """
    if not _is_set_up():
        return 0
    now = timezone.now()
    is_missing = services.forecast_is_missing(now=now)
    fired = services.budgets_evaluate(now=now)
    if is_missing:
        outlook_update()
    return len(fired)


@shared_task
def alerts_deliver() -> int:
    """Send due alerts and the events of webhooks; returns how many deliveries succeeded."""
    if not _is_set_up():
        return 0
    now = timezone.now()
    return services.alerts_deliver(now=now) + services.webhooks_deliver(now=now)


@shared_task
def outlook_update() -> int:
    """Store the days that ended, make forecasts and look for anomalies; returns how many are new."""
    if not _is_set_up():
        return 0
    now = timezone.now()
    services.days_store(now=now)
    services.forecasts_update(now=now)
    return len(services.findings_update(now=now))


def _is_set_up() -> bool:
    return BillingSetup.objects.exists()
