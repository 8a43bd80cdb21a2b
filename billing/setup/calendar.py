"""The business days of the house in a set-up file: holidays, and the days of weekends that make up for them."""

from datetime import date

from billing.invoices.acceptance import last_deadline
from billing.setup.file import Entry
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import house_calendar
from pricing.business_days import SATURDAY, BusinessCalendar


def read_calendar(entry: Entry) -> BusinessCalendar:
    """`holidays` and `working_days` of the entry.  Raises SetUpFileError."""
    holidays, working_days = entry.days("holidays"), entry.days("working_days")
    if both := sorted(holidays & working_days):
        raise entry.error("working_days", f"{both[0]} stands under holidays too: a day is either")
    if worked := sorted(day for day in working_days if day.weekday() < SATURDAY):
        raise entry.error("working_days", f"{worked[0]} is no Saturday or Sunday: it is worked anyway")
    return BusinessCalendar(holidays, working_days)


def refuse_moved_deadlines(entry: Entry, wanted: BusinessCalendar) -> None:
    """A deadline that somebody was told never moves.  Raises SetUpFileError."""
    setup = BillingSetup.objects.first()
    if setup is None:
        return
    known = house_calendar(setup)
    told = last_deadline(known, setup.zone)
    for field in ("holidays", "working_days"):
        changed: frozenset[date] = getattr(wanted, field) ^ getattr(known, field)
        moved = [day for day in sorted(changed) if told is not None and day < told.date()]
        if moved:
            raise entry.error(field, f"{moved[0]} lies within the deadlines of issued documents, which are told already")
