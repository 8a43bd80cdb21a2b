"""What may leave the house for other systems: the documents of a month, once all of them are issued.

A ledger journal or a cost export of half a month would be posted as if it were the whole.
"""

from billing.invoicing.models import BillingPeriod, Invoice
from billing.invoicing.selectors import invoices_of


class NoPeriodError(LookupError):
    """A month that nobody has opened."""


class NotIssuedError(Exception):
    """Nothing is issued, or drafts still wait: somebody has to act before the month is complete."""


def issued_invoices(month: str) -> tuple[BillingPeriod, list[Invoice]]:
    """The period and its invoices in order of their numbers.  Raises NoPeriodError, NotIssuedError."""
    period = BillingPeriod.objects.filter(month=month).first()
    if period is None:
        raise NoPeriodError(f"month {month!r}: no such period")
    if period.status != BillingPeriod.Status.CLOSED:
        raise NotIssuedError(f"period {month} is {period.status}: close it with `manage.py period_close {month}`")
    invoices = list(invoices_of(month))
    waiting = [invoice.team.code for invoice in invoices if invoice.status != Invoice.Status.ISSUED]
    if waiting:
        raise NotIssuedError(
            f"{len(waiting)} of {len(invoices)} invoices of {month} are not issued ({', '.join(waiting[:5])}): approve "
            f"them and run `manage.py invoice_issue {month}`"
        )
    if not invoices:
        raise NotIssuedError(f"no invoice of {month} is issued: the period closed without charges")
    return period, sorted(invoices, key=lambda invoice: (invoice.fiscal_year or 0, invoice.sequence or 0))
