"""The counters of budget checks: brought from the ledger, with an end for reservations that it counts by now."""

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
    """Recompute the status of budgets and bring that to the reservations; without Valkey the former alone.

    Looks for records in the ledger first and takes the number of the last refresh second: any refresh of a higher one
    reads the ledger later, so that it counts what was found.
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
    """Keys of records in the ledger for which something is reserved."""
    try:
        return known_keys(reservations().waiting())
    except ReservationsAwayError:
        return []
