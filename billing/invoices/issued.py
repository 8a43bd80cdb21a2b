"""What may leave the house for other systems: the documents of a month, once all of them are issued.

A ledger journal or a cost export of half a month would be posted as if it were the whole. Credit notes and rebills that
were issued while the month was open belong to it.
"""

from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.selectors import drafts_of_close, invoices_of

Issued = Invoice | Note


class NoPeriodError(LookupError):
    """A month that nobody has opened."""


class NotIssuedError(Exception):
    """Nothing is issued, or drafts still wait: somebody has to act before the month is complete."""


def issued_documents(month: str, *, texts: bool = True) -> tuple[BillingPeriod, list[Issued]]:
    """The period and its invoices, then its notes, in order of their numbers; without `texts` what they say stays unread.

    Raises NoPeriodError, NotIssuedError.
    """
    period = BillingPeriod.objects.filter(month=month).first()
    if period is None:
        raise NoPeriodError(f"month {month!r}: no such period")
    if period.status != BillingPeriod.Status.CLOSED:
        raise NotIssuedError(f"period {month} is {period.status}: close it with `manage.py period_close {month}`")
    known = invoices_of(month).filter(shadow=False)
    invoices = list(known.defer("draft") if texts else known.defer("draft", "document"))
    _refuse_unbuilt(period)
    waiting = [invoice.team.code for invoice in invoices if invoice.status != Invoice.Status.ISSUED]
    if waiting:
        raise NotIssuedError(
            f"{len(waiting)} of {len(invoices)} invoices of {month} are not issued ({', '.join(waiting[:5])}): approve "
            f"them and run `manage.py invoice_issue {month}`"
        )
    notes = list(issued_notes(month))
    if not invoices and not notes:
        raise NotIssuedError(f"no invoice of {month} is issued: the period closed without charges")
    return period, [*sorted(invoices, key=lambda invoice: (invoice.fiscal_year or 0, invoice.sequence or 0)), *notes]


def _refuse_unbuilt(period: BillingPeriod) -> None:
    """A voided draft that nobody rebuilt leaves a team without its invoice."""
    drafts = drafts_of_close(period)
    kept = drafts.exclude(status=Invoice.Status.VOID).values_list("team_id", "shadow")
    for invoice in drafts.filter(status=Invoice.Status.VOID).select_related("team"):
        if (invoice.team_id, invoice.shadow) not in kept:
            raise NotIssuedError(
                f"the draft of {invoice.team.code} for {period.month} was voided: build it again with "
                f"`manage.py invoice rebuild {period.month} --team {invoice.team.code}`"
            )


def issued_notes(month: str) -> list[Note]:
    """The notes that were issued in a month, in order of their numbers."""
    notes = Note.objects.filter(correction__period__month=month, number__isnull=False)
    return list(notes.select_related("team", "correction", "invoice").order_by("kind", "fiscal_year", "sequence"))
