"""Command `manage.py budget_counter [--follow]`: recomputes the counters of all budgets from the ledger."""

import logging
import os
import signal
import threading
import time
from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from billing.budgets.models import BudgetStatus
from billing.budgets.services import counters_refresh
from billing.tenancy.app_command import AppCommand, amount_text
from billing.tenancy.selectors import NoSetupError

SHORTEST_PAUSE = 1.0
SHARE_OF_A_CORE = 5
LONG_PAUSE = 5.0
GENTLE = 10

log = logging.getLogger(__name__)


class Command(AppCommand):
    help = "Compute what every budget has spent from the ledger and keep it as the counter of budget checks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--follow", action="store_true", help="go on until stopped, with a fifth of a core at most")
        self.take(parser, "json")

    def run(self, *, follow: bool, json: bool, **_: Any) -> int:
        if follow:
            self._follow()
            return 0
        before = {(row.budget_id, row.period): row.spent for row in BudgetStatus.objects.all()}
        standings = counters_refresh(now=timezone.now())
        rows = [_row(standing, before.get((standing.budget_id, standing.period))) for standing in standings]
        if json:
            self.print_json({"budgets": [_as_json(row) for row in rows]})
            return 0
        for row in rows:
            was = f" (was {row['was']})" if row["was"] not in (None, row["spent"]) else ""
            self.say(f"{row['period']}  {row['budget']}: {row['spent']:,} of {row['amount']:,}{was}")
        if not rows:
            self.say("no budget is in force: declare some under `budgets:` of the set-up file")
        return 0

    def _follow(self) -> None:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        os.nice(GENTLE)
        pause = 0.0
        while not stop.wait(pause):
            started = time.monotonic()
            try:
                close_old_connections()
                counters_refresh(now=timezone.now())
            except NoSetupError:
                pause = SHORTEST_PAUSE  # nothing to count yet
                continue
            except Exception:  # the edge of the loop: a later attempt may succeed
                log.exception("the counters of budgets could not be refreshed")
                pause = LONG_PAUSE
                continue
            pause = max(SHORTEST_PAUSE, (SHARE_OF_A_CORE - 1) * (time.monotonic() - started))


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with amounts as decimal strings."""
    return {name: amount_text(value) if isinstance(value, Decimal) else value for name, value in row.items()}


def _row(standing: BudgetStatus, was: Any) -> dict[str, Any]:
    return {
        "budget": str(standing.budget), "team": standing.budget.team.code, "period": standing.period,
        "amount": standing.amount, "spent": standing.spent, "encumbered": standing.encumbered, "was": was,
    }  # fmt: skip
