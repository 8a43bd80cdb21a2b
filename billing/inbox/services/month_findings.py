"""Periodic repetition of the close check for open months."""

from datetime import datetime

from django.db import transaction

from billing.closing.report import build_report
from billing.closing.snapshots import report_shown
from billing.inbox.findings import findings_in, findings_of, stored
from billing.inbox.models import MonthFindings
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.runtime.apart import each_apart
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.selectors import usage_months
from metering.intervals import month_of


def findings_refresh(*, now: datetime) -> int:
    """Store the blockers of each open month, and delete those of closed ones; return the number of open months.

    A large month is not rated for it: the findings of its last rating are judged again.
    """
    months = _open_months(now)
    each_apart(months, lambda month: _keep(period_of(month), now))
    MonthFindings.objects.exclude(month__in=months).delete()
    return len(months)


def _open_months(now: datetime) -> list[str]:
    try:
        zone = billing_setup().zone
    except NoSetupError:
        return []
    used = set(usage_months(now, zone)) | {month_of(now, zone)}
    closed = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).values_list("month", flat=True)
    return sorted(used - set(closed))


def _keep(period: BillingPeriod, now: datetime) -> None:
    shown = report_shown(period, now)
    report = build_report(period, now=now, thorough=False) if shown is None else shown.report
    with transaction.atomic():
        row = MonthFindings.objects.select_for_update().filter(month=period.month).first()
        before = [] if row is None else findings_in(row)
        facts = {
            "as_of": now if shown is None else shown.as_of, "content": stored(findings_of(report, now, before)),
            "closable": report.closable and period.end <= now,
        }  # fmt: skip
        MonthFindings.objects.update_or_create(month=period.month, defaults=facts)
