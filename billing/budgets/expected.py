"""Expected total of a period for a scope: the forecast of every budget, and of a running month for any scope."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial

from billing.budgets.committed_forecast import Bought, as_billed, bought_ahead
from billing.budgets.forecast import DAY, Progress, forecast, withheld
from billing.budgets.history import Past, past_until
from billing.budgets.models import FORECAST_LATE, SCOPE_FIELDS, BudgetStatus, CountedDays
from billing.budgets.repricing import PricesAhead, prices_ahead
from billing.budgets.scope import Scope
from billing.budgets.selectors import scope_of, team_tree
from billing.budgets.spending import Running, by_team, local_days, running_jobs
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.team_isolation import TeamRatingError, rated_by_team
from billing.tenancy.models import Team
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval, day_of, midnight_of
from pricing.money import round_amount


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected total of a period; p10 and p90 are None where the past is too short for a band.

    withheld: reason for no forecast: `silent`, `early`, `uncounted`, `history`, `failed` or `passed`; p50 is None then.
    errors, windows: as in Forecast.
    """

    p50: Decimal | None = None
    p10: Decimal | None = None
    p90: Decimal | None = None
    method: str = ""
    withheld: str = ""
    errors: Mapping[str, Fraction] = field(default_factory=dict)
    windows: int = 0


@dataclass(frozen=True)
class Outlook:
    """Inputs of the forecasts of an instant, each read when it is first needed.

    `until`: when the last period ends. `buyers`: teams that may have commitments. `prices`: published ones to come.
    `reference_data`: owners and prices; by default the current ones.
    """

    now: datetime
    zone: str
    until: datetime
    buyers: Collection[str]
    prices: PricesAhead
    reference_data: ReferenceData | None = None

    @cached_property
    def past(self) -> Past:
        """Return the stored days, and today so far."""
        return past_until(self.now, self.zone)

    @cached_property
    def jobs(self) -> dict[str, list[Running]]:
        return by_team(running_jobs(self.now, self.reference_data))

    @cached_property
    def _bought(self) -> tuple[list[Bought], Mapping[str, str]]:
        """Return what is left of the commitments of `buyers`, and the error of each team for which it cannot be computed."""
        if not self.buyers:
            return [], {}
        known = self.reference_data or reference_data_known(last_close_seq() + 1)

        def of(teams: Collection[str]) -> list[Bought]:
            return bought_ahead(self.until, known, teams, now=self.now, zone=self.zone)

        try:
            return rated_by_team(self.buyers, str, of), {}
        except TeamRatingError as error:
            return of(set(self.buyers) - error.problems.keys()), error.problems

    def bought(self, scope: Scope, until: date) -> list[Bought]:
        """Return the bought hours that teams of the scope have left before that day.  Raises TeamRatingError."""
        bought, problems = self._bought
        if unknown := {team: problems[team] for team in problems.keys() & scope.teams}:
            raise TeamRatingError(unknown)
        return [item for item in bought if item.team in scope.teams and item.first < until]

    @cached_property
    def counted(self) -> date | None:
        """Return the last day up to which the stored past is complete; None before the first count."""
        return CountedDays.objects.values_list("through", flat=True).first()

    def of(self, scope: Scope, window: Interval, spent: Decimal, *, silent: bool) -> Expected:
        """Forecast a scope in the window, which contains `now`, by the method that erred least.

        `spent`: cost of the window so far; its irregular part (adjustments, corrections) is not extrapolated.
        `silent`: a reporter of usage of the scope is silent.  Raises TeamRatingError.
        """
        start, days, elapsed = progress_of(window.start, window.end, self.now, self.zone)
        yesterday = day_of(self.now, self.zone) - DAY
        if reason := withheld(elapsed, yesterday, silent=silent, counted=self.counted):
            return Expected(withheld=reason)
        history, today = self.past.of_scope(scope), start + int(elapsed) * DAY
        regular = sum((amount for day, amount in history.items() if start <= day < today), self.past.today_of(scope))
        jobs = [job for team in scope.teams for job in self.jobs.get(team, ())]
        by_day = partial(encumbered_by_day, now=self.now, end=window.end, zone=self.zone)
        dearer = self.prices.dearer(scope, window.end)
        progress = Progress(start, days, elapsed, regular, by_day([job for job in jobs if scope.covers(job)]), dearer)
        answer, extra = forecast(progress, history), Fraction(spent) - regular
        if answer is None:
            return Expected(withheld="history")
        bought, of_devices = self.bought(scope, start + days * DAY), partial(self.prices.dearer_devices, until=window.end)
        answer = as_billed(answer, progress, scope, bought, self.past, jobs, by_day, of_devices)
        low, high = (None if end is None else round_amount(end + extra) for end in (answer.p10, answer.p90))
        return Expected(
            round_amount(answer.p50 + extra), low, high, answer.method, errors=answer.errors, windows=answer.windows
        )


def expected_of(
    scope: Scope, window: Interval, spent: Decimal, now: datetime, zone: str, reference_data: ReferenceData, *, silent: bool
) -> Expected | None:
    """Forecast a scope in the window that contains `now`; None outside it.

    A budget of exactly that scope gives its stored forecast, so that all pages agree; else one is made as of `now`.
    """
    if not window.start <= now < window.end:
        return None
    if not silent and (budgeted := _of_budget(scope, window, spent, now)) is not None:
        return budgeted
    outlook = Outlook(now, zone, window.end, scope.teams, prices_ahead(now, window.end, zone), reference_data)
    return outlook.of(scope, window, spent, silent=silent)


def _of_budget(scope: Scope, window: Interval, spent: Decimal, now: datetime) -> Expected | None:
    """Return the forecast of a budget of just this scope and window; None without one, and if it is outdated."""
    patterns = {f"budget__{name}": getattr(scope, name) for name in SCOPE_FIELDS}
    lately = {"forecast_at__gt": now - FORECAST_LATE, "as_of__gt": now - FORECAST_LATE, "silent_since": None}
    made = BudgetStatus.objects.filter(start=window.start, end=window.end, **lately, **patterns)
    tree, groups = team_tree(now), set(Team.objects.filter(is_group=True).values_list("code", flat=True))
    for standing in made.select_related("budget__team").order_by("-forecast_at", "pk"):
        if scope_of(standing.budget, tree).teams - groups == scope.teams:
            # a forecast below what is spent by now is outdated, whatever its time
            return None if (standing.forecast_p50 or spent) < max(spent, standing.spent) else expected_by(standing)
    return None


def expected_by(standing: BudgetStatus) -> Expected:
    """Return a budget's stored forecast; none while metering is silent, or once spending exceeds it."""
    if standing.silent_since is not None:
        return Expected(withheld="silent")
    if standing.forecast_p50 is None:
        return Expected(withheld=standing.forecast_withheld or "uncounted")
    if standing.forecast_p50 < standing.spent:
        return Expected(withheld="passed")
    return Expected(
        standing.forecast_p50, standing.forecast_p10, standing.forecast_p90, standing.forecast_method,
        errors={name: Fraction(error) for name, error in standing.forecast_errors.items()},
        windows=standing.forecast_windows,
    )  # fmt: skip


def progress_of(start: datetime, end: datetime, now: datetime, zone: str) -> tuple[date, int, Fraction]:
    """Return the first local day, the number of local days, and how many have passed, the part of today included."""
    first, last, today = (day_of(at, zone) for at in (start, end, now))
    midnight, tomorrow = (midnight_of(day, zone) for day in (today, today + DAY))
    so_far = Fraction(Interval(midnight, now).microseconds, Interval(midnight, tomorrow).microseconds)
    return first, (last - first).days, (today - first).days + so_far


def encumbered_by_day(jobs: list[Running], now: datetime, end: datetime, zone: str) -> Mapping[date, Fraction]:
    """Return the expected cost of running jobs on each remaining local day of the period; today counts from now on."""
    costs = {
        day_of(day.start, zone): sum((job.cost_in(day) for job in jobs), Fraction(0))
        for day in local_days(now, end, zone)
    }
    return {day: cost for day, cost in costs.items() if cost}
