"""Documents of a month for other systems, once all of them are issued.

A ledger journal or a cost export of half a month would be posted as if it were the whole. Credit notes and rebills
issued while the month was open belong to it.
"""

from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.selectors import invoices_of, unbuilt_drafts
from metering.messages import Message, UserError

Issued = Invoice | Note


class NoPeriodError(UserError, LookupError):
    """Error of a month without a period."""

    code = "no_period"


class NotIssuedError(UserError):
    """Error of a month without issued documents, or with drafts that a person must act on first."""

    code = "not_issued"


def issued_documents(month: str, *, texts: bool = True) -> tuple[BillingPeriod, list[Issued]]:
    """Return the period and its invoices, then its notes, by number; without `texts` their content is not read.

    Raises NoPeriodError, NotIssuedError.
    """
    period = BillingPeriod.objects.filter(month=month).first()
    if period is None:
        raise NoPeriodError(Message("month %(month)s: no such period", month=repr(month)))
    if period.status != BillingPeriod.Status.CLOSED:
        raise NotIssuedError(Message(
            "period %(month)s is %(status)s: close it with `manage.py period_close %(month)s`",
            month=month, status=period.status,
        ))
    known = invoices_of(month).filter(shadow=False)
    invoices = list(known.defer("draft") if texts else known.defer("draft", "document"))
    _refuse_unbuilt(period)
    waiting = [invoice.team.code for invoice in invoices if invoice.status != Invoice.Status.ISSUED]
    if waiting:
        raise NotIssuedError(Message(
            "%(n)s of %(all)s invoices of %(month)s are not issued (%(names)s): approve them and run `manage.py "
            "invoice_issue %(month)s`",
            n=len(waiting), all=len(invoices), month=month, names=", ".join(waiting[:5]),
        ))
    notes = list(issued_notes(month))
    if not invoices and not notes:
        raise NotIssuedError(Message("no invoice of %(month)s is issued: the period closed without charges", month=month))
    return period, [*sorted(invoices, key=lambda invoice: (invoice.fiscal_year or 0, invoice.sequence or 0)), *notes]


def _refuse_unbuilt(period: BillingPeriod) -> None:
    """Raise NotIssuedError for a voided draft that was not rebuilt, which leaves a team without its invoice."""
    for invoice in unbuilt_drafts(period):
        raise NotIssuedError(unbuilt_words(invoice, period.month))


def unbuilt_words(invoice: Invoice, month: str) -> Message:
    """Return the advice about a voided draft that was not rebuilt."""
    return Message(
        "the draft of %(code)s for %(month)s was voided: build it again with `manage.py invoice rebuild %(month)s --team "
        "%(code)s`",
        code=invoice.team.code, month=month,
    )


def unbuilt_teams(period: BillingPeriod) -> dict[str, str]:
    """Return teams without charges in a closed month because their drafts were voided, with the advice."""
    return {one.team.code: unbuilt_words(one, period.month) for one in unbuilt_drafts(period) if not one.shadow}


def issued_notes(month: str) -> list[Note]:
    """Return the notes issued in a month, by number."""
    notes = Note.objects.filter(correction__period__month=month, number__isnull=False)
    return list(notes.select_related("team", "correction", "invoice").order_by("kind", "fiscal_year", "sequence"))
