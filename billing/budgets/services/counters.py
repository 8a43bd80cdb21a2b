"""Counters of budget checks: recomputed from the ledger, which also ends the reservations that it now contains."""

import logging
from datetime import datetime

from billing.budgets.models import BudgetStatus
from billing.budgets.reference import counters_read
from billing.budgets.reservations import ReservationsAwayError, reservations
from billing.budgets.services.standings import standings_refresh
from billing.runtime.parallel_reads import rows_read
from billing.usage.store.records import known_keys

log = logging.getLogger(__name__)


def counters_refresh(*, now: datetime, past: bool = False) -> list[BudgetStatus]:
    """Recompute the status of budgets and send it to the reservations; without Valkey only the former.

    Looks for records in the ledger first and reads the number of the last refresh second: any refresh of a higher number
    reads the ledger later, so that it includes the records found.
    """
    landed = _landed()
    ((since,),) = rows_read("SELECT last_value FROM budget_refresh", {})
    standings = standings_refresh(now=now, past=past)
    try:
        reservations().count(counters_read(now), landed=landed, since=since)
    except ReservationsAwayError as error:
        log.warning("counters are not brought to budget checks: %s", error)
    return standings


def _landed() -> list[bytes]:
    """Return the keys of records in the ledger that still have a reservation."""
    try:
        return known_keys(reservations().waiting())
    except ReservationsAwayError:
        return []
