"""Status of each budget: recomputed from the ledger, stored for checks, alerts and pages."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction

from django.db import connection

from billing.budgets.encumbrance import Encumbrance
from billing.budgets.group_times import GroupTimes, Moves
from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.scope import BudgetPeriod, Scope
from billing.budgets.selectors import budgets_with_periods
from billing.budgets.spending import MonthLines, Spent, by_team, covered, month_lines, running_jobs
from billing.rating.freshness import freshness
from billing.runtime.apart import each_apart
from billing.runtime.parallel_reads import rows_read
from billing.tenancy.selectors import billing_setup
from billing.usage.reported import Reported
from metering.intervals import month_of
from pricing.money import round_amount


def standings_refresh(*, now: datetime, past: bool = False) -> list[BudgetStatus]:
    """Recompute the status of every budget in force; with `past` also of periods that ended but are not closed.

    Takes its generation before it reads: a process that saw a record in the ledger and then this number finds the record in
    every status of a higher one. An older refresh that ends later changes nothing. Budgets of a team that cannot be
    rated, and one that cannot be summed, keep their last known status, with its time.
    """
    ((generation,),) = rows_read("SELECT nextval('budget_refresh')", {})
    zone = billing_setup().zone
    wanted = budgets_with_periods(now, zone, past=past)
    groups = GroupTimes.read()
    lines = _Lines(zone, now, groups.moves)
    jobs = Encumbrance(by_team(running_jobs(now)) if wanted else {}, zone)
    scoped = [(budget, period, groups.scope_in(budget, period.window)) for budget, period in wanted]
    known = [item for item in scoped if lines.known(item[1].months, item[2])]
    reported = Reported(now)

    def refresh(item: tuple[Budget, BudgetPeriod, Scope]) -> BudgetStatus:
        row = _row(*item, lines, jobs, reported, generation)
        _store(row)
        return row

    return _stored(each_apart(known, refresh))


class _Lines:
    """Lines of the months that have begun, each rated once per refresh."""

    def __init__(self, zone: str, now: datetime, moves: Moves) -> None:
        self._zone, self._last, self._moves = zone, month_of(now, zone), moves
        self._months: dict[str, tuple[dict[str, list[Spent]], MonthLines]] = {}

    def known(self, months: Iterable[str], scope: Scope) -> bool:
        """Return True if all teams of the scope can be rated in all of the months that have begun."""
        return not any(self._read(month)[1].unrated & scope.teams for month in months if month <= self._last)

    def _read(self, month: str) -> tuple[dict[str, list[Spent]], MonthLines]:
        """Return the lines of a month by team, and the whole month."""
        if month not in self._months:
            rated = month_lines(month, self._zone, self._moves)
            self._months[month] = (by_team(rated.lines), rated)
        return self._months[month]

    def of(self, months: Iterable[str], scope: Scope) -> Iterable[Spent]:
        """Yield the lines that count. The first open month bills late usage of closed months, so it counts only there.

        A line of a team that changes its group counts for the groups of the time of its use.
        """
        late_billed, anybody = False, replace(scope, teams=scope.teams | scope.earlier)
        for month in months:
            if month > self._last:
                return
            lines, rated = self._read(month)
            for line in covered(lines, anybody):
                if scope.counts_at(line.team, line.since) and not (late_billed and line.correction):
                    yield line
            late_billed = late_billed or rated.preview


def _row(
    budget: Budget, period: BudgetPeriod, scope: Scope, lines: _Lines, jobs: Encumbrance, reported: Reported,
    generation: int,
) -> BudgetStatus:
    now = reported.until
    fresh = freshness(scope, period.window, now, reported=reported)
    spent = sum((line.amount for line in lines.of(period.months, scope)), Fraction(0))
    return BudgetStatus(
        budget=budget, period=period.label, start=period.window.start, end=period.window.end, amount=period.amount,
        spent=round_amount(spent), encumbered=round_amount(jobs.of(scope, period)), as_of=now, generation=generation,
        data_through=fresh.data_through, silent_since=fresh.silent_since,
    )  # fmt: skip


def _store(row: BudgetStatus) -> None:
    # raw SQL: an upsert of the ORM takes no condition, and only a later generation may replace a row
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO budgets_budgetstatus (budget_id, period, start, "end", amount, spent, encumbered, as_of,
                   generation, data_through, silent_since, forecast_method, forecast_errors, forecast_windows)
               VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', '{}', 0)
               ON CONFLICT (budget_id, period) DO UPDATE SET start = excluded.start, "end" = excluded."end",
                   amount = excluded.amount, spent = excluded.spent, encumbered = excluded.encumbered,
                   as_of = excluded.as_of, generation = excluded.generation, data_through = excluded.data_through,
                   silent_since = excluded.silent_since
               WHERE budgets_budgetstatus.generation < excluded.generation""",
            [
                row.budget_id, row.period, row.start, row.end, row.amount, row.spent, row.encumbered, row.as_of,
                row.generation, row.data_through, row.silent_since,
            ],
        )  # fmt: skip


def _stored(rows: list[BudgetStatus]) -> list[BudgetStatus]:
    """Return the rows as stored now, with their forecasts, in the order requested."""
    wanted = {(row.budget_id, row.period): row for row in rows}
    known = BudgetStatus.objects.filter(budget__in={row.budget_id for row in rows}).select_related("budget__team")
    found = {(row.budget_id, row.period): row for row in known}
    return [found[key] for key in wanted if key in found]

