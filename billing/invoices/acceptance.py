"""Acceptance deadlines of documents: the end of objections, and the time of acceptance, in the company's business days.

Silence for five business days accepts a document; a dispute within them holds it until it is decided.
A line can still be disputed to the end of the tenth day, when the amount is final: that is its due date.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Max

from billing.invoices.models import BillingPeriod, DocumentEvent, Invoice, Note
from billing.invoices.selectors import document_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar
from metering.intervals import day_of, midnight_of
from pricing.business_days import BusinessCalendar

TRIAGE_DAYS = 2
ACCEPTANCE_DAYS = 5
"""Business days without an objection after which a document is accepted."""
DECISION_DAYS = 10
DISPUTE_WINDOW_DAYS = 10
State = Literal["waiting", "held", "accepted"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of a document: accepted `at` an instant, waiting for `until`, or held by a dispute from before `until`."""

    state: State
    until: datetime
    at: datetime | None


def end_of_business_day(start: datetime, days: int, zone: str, calendar: BusinessCalendar) -> datetime:
    """Return the end (the following local midnight) of the `days`-th business day after the day of `start`.

    >>> from datetime import UTC, date
    >>> from pricing.business_days import WEEKDAYS
    >>> friday = datetime(2026, 11, 6, 9, tzinfo=UTC)
    >>> end_of_business_day(friday, 2, "UTC", WEEKDAYS).isoformat()
    '2026-11-11T00:00:00+00:00'
    >>> end_of_business_day(datetime(2026, 11, 6, 17, tzinfo=UTC), 2, "Asia/Shanghai", WEEKDAYS).isoformat()
    '2026-11-11T00:00:00+08:00'
    >>> end_of_business_day(friday, 2, "UTC", BusinessCalendar(frozenset({date(2026, 11, 9)}))).isoformat()
    '2026-11-12T00:00:00+00:00'
    """
    day = day_of(start, zone)
    while days:
        day += timedelta(days=1)
        days -= calendar.works(day)
    return midnight_of(day + timedelta(days=1), zone)


def due_of(document: Invoice | Note, zone: str, calendar: BusinessCalendar) -> datetime | None:
    """Return the instant when the dispute window ends and the amount is final; None for drafts and credit notes."""
    if document.issued_at is None or _credits(document):
        return None
    return end_of_business_day(document.issued_at, DISPUTE_WINDOW_DAYS, zone, calendar)


def printed_until(document: Invoice | Note, setup: BillingSetup | None = None) -> datetime | None:
    """Return the end of the dispute window as printed on a document; None before its issue and for credit notes."""
    if document.issued_at is None or _credits(document):
        return None
    # the zone in the document: the set-up may have another one by now
    return due_of(document, document_of(document)["period"]["zone"], company_calendar(setup))


def acceptance_of(
    document: Invoice | Note, *, zone: str, calendar: BusinessCalendar, now: datetime
) -> Acceptance | None:
    """Return the acceptance of an issued document; None before its issue. A credit note is accepted at its issue.

    Disputes hold it until the last of them is decided. Once accepted it stays so, whatever is disputed later.
    """
    issued_at = document.issued_at
    if issued_at is None:
        return None
    if _credits(document):
        return Acceptance("accepted", issued_at, issued_at)
    until = end_of_business_day(issued_at, ACCEPTANCE_DAYS, zone, calendar)
    events = sorted((event for event in document.events.all() if event.at <= now), key=lambda event: (event.at, event.pk))
    undecided, at = 0, until
    for event in events:
        if not undecided and event.at >= at:
            break  # accepted: a dispute of a line after that holds nothing
        if event.kind == DocumentEvent.Kind.DISPUTED:
            undecided += 1
        elif event.kind == DocumentEvent.Kind.DECIDED:
            undecided -= 1
            at = max(until, event.at)
    if undecided:
        return Acceptance("held", until, None)
    return Acceptance("waiting", until, None) if now < at else Acceptance("accepted", until, at)


def acceptance_counts(period: BillingPeriod, now: datetime) -> dict[str, int]:
    """Return the numbers of a month's issued invoices by acceptance state; empty before any is issued."""
    rows = period.invoices.filter(number__isnull=False).only("issued_at", "number", "period")  # no other column is read
    issued = list(rows.prefetch_related("events"))
    if not issued:
        return {}
    calendar = company_calendar()
    found = (acceptance_of(invoice, zone=period.zone, calendar=calendar, now=now) for invoice in issued)
    counts = Counter(item.state for item in found if item is not None)
    return {state: counts[state] for state in ("waiting", "held", "accepted")}


def last_deadline(calendar: BusinessCalendar, zone: str) -> datetime | None:
    """Return the end of the last deadline printed on any document; None before the first issue."""
    last = [
        issued
        for model in (Invoice, Note)
        if (issued := model._default_manager.aggregate(last=Max("issued_at"))["last"]) is not None
    ]
    return end_of_business_day(max(last), DISPUTE_WINDOW_DAYS, zone, calendar) if last else None


def _credits(document: Invoice | Note) -> bool:
    return isinstance(document, Note) and document.kind == Note.Kind.CREDIT
