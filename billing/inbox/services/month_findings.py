"""Periodic repetition of the close check for open months."""

from datetime import datetime

from django.db import transaction

from billing.closing.due_credits import credits_due
from billing.closing.report import build_report
from billing.closing.snapshots import report_shown
from billing.inbox.findings import CREDIT_DUE, findings_in, findings_of, stored, with_drafts
from billing.inbox.models import MonthFindings
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.rating.selectors import closed_until
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


def draft_remove(number: str) -> None:
    """Remove the draft of a credit note of an invoice, which was submitted, before the next check does."""
    with transaction.atomic():
        for row in MonthFindings.objects.select_for_update().order_by("month"):
            found = findings_in(row)
            kept = [item for item in found if item.key != (CREDIT_DUE, number)]
            if len(kept) < len(found):
                row.content = stored(kept)
                row.save(update_fields=["content"])


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
    # credits of all closed months wait beside the first open one
    drafts = credits_due() if period.start == closed_until() else []
    with transaction.atomic():
        row = MonthFindings.objects.select_for_update().filter(month=period.month).first()
        before = [] if row is None else findings_in(row)
        found = with_drafts(findings_of(report, now, before), drafts, now, before)
        facts = {
            "as_of": now if shown is None else shown.as_of, "content": stored(found),
            "closable": report.closable and period.end <= now,
        }  # fmt: skip
        MonthFindings.objects.update_or_create(month=period.month, defaults=facts)
