"""Where a period will end for a scope: the forecast of every budget, and of a running month for any scope."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from zoneinfo import ZoneInfo

from billing.budgets.committed_forecast import Bought, as_billed, bought_ahead
from billing.budgets.forecast import DAY, Progress, forecast, withheld
from billing.budgets.history import Past, midnight_before, past_until
from billing.budgets.models import CountedDays
from billing.budgets.repricing import PricesAhead
from billing.budgets.scope import Scope
from billing.budgets.spending import Running, by_team, local_days, running_jobs
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.team_isolation import TeamRatingError, rated_by_team
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval
from pricing.money import round_amount


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected total of a period; p10 and p90 None where the past is too short for a band.

    withheld: why there is none: `silent`, `early`, `uncounted`, `history` or `failed`; p50 is None then.
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
    """What the forecasts of an instant are made from, each part read when it is first needed.

    `until`: when the last period ends. `buyers`: teams that may have commitments. `prices`: published ones to come; without,
    every day is forecast at the prices of now. `reference_data`: owners and prices; without, those of now.
    """

    now: datetime
    zone: str
    until: datetime
    buyers: Collection[str]
    prices: PricesAhead | None = None
    reference_data: ReferenceData | None = None

    @cached_property
    def past(self) -> Past:
        """The stored days, and today so far."""
        return past_until(self.now, self.zone)

    @cached_property
    def jobs(self) -> dict[str, list[Running]]:
        """The running jobs, by team."""
        return by_team(running_jobs(self.now, self.reference_data))

    @cached_property
    def _bought(self) -> tuple[list[Bought], Mapping[str, str]]:
        """What is left of the commitments of `buyers`, and the teams for which that cannot be said, with what was raised."""
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
        """What teams of the scope have left before that day.  Raises TeamRatingError."""
        bought, problems = self._bought
        if unknown := {team: problems[team] for team in problems.keys() & scope.teams}:
            raise TeamRatingError(unknown)
        return [item for item in bought if item.team in scope.teams and item.first < until]

    @cached_property
    def counted(self) -> date | None:
        """Through which day the stored past is complete; None before the first count."""
        return CountedDays.objects.values_list("through", flat=True).first()

    def of(self, scope: Scope, window: Interval, spent: Decimal, *, silent: bool) -> Expected:
        """The forecast of a scope in the window, which contains `now`, by the method that erred least.

        `spent` is what the window costs so far; what of it is no regular usage (adjustments, corrections) does not go on.
        `silent`: whether somebody who reports usage of the scope is silent.  Raises TeamRatingError.
        """
        start, days, elapsed = progress_of(window.start, window.end, self.now, self.zone)
        yesterday = midnight_before(self.now, self.zone).date() - DAY
        if reason := withheld(elapsed, yesterday, silent=silent, counted=self.counted):
            return Expected(withheld=reason)
        history, today = self.past.of_scope(scope), start + int(elapsed) * DAY
        regular = sum((amount for day, amount in history.items() if start <= day < today), self.past.today_of(scope))
        jobs = [job for team in scope.teams for job in self.jobs.get(team, ())]
        by_day = partial(encumbered_by_day, now=self.now, end=window.end, zone=self.zone)
        dearer = self.prices.dearer(scope, window.end) if self.prices else {}
        progress = Progress(start, days, elapsed, regular, by_day([job for job in jobs if scope.covers(job)]), dearer)
        answer, extra = forecast(progress, history), Fraction(spent) - regular
        if answer is None:
            return Expected(withheld="history")
        answer = as_billed(answer, progress, scope, self.bought(scope, start + days * DAY), self.past, jobs, by_day)
        low, high = (None if end is None else round_amount(end + extra) for end in (answer.p10, answer.p90))
        return Expected(
            round_amount(answer.p50 + extra), low, high, answer.method, errors=answer.errors, windows=answer.windows
        )


def expected_of(
    scope: Scope, window: Interval, spent: Decimal, now: datetime, zone: str, reference_data: ReferenceData, *, silent: bool
) -> Expected | None:
    """The forecast of a scope in the window that contains `now`, at the prices of now; None outside it."""
    if not window.start <= now < window.end:
        return None
    outlook = Outlook(now, zone, window.end, scope.teams, reference_data=reference_data)
    return outlook.of(scope, window, spent, silent=silent)


def progress_of(start: datetime, end: datetime, now: datetime, zone: str) -> tuple[date, int, Fraction]:
    """First local day, how many local days, and how many of them have passed, the part of today included."""
    where = ZoneInfo(zone)
    first, last, today = (at.astimezone(where).date() for at in (start, end, now))
    midnight, tomorrow = (datetime(day.year, day.month, day.day, tzinfo=where) for day in (today, today + DAY))
    so_far = Fraction(Interval(midnight, now).microseconds, Interval(midnight, tomorrow).microseconds)
    return first, (last - first).days, (today - first).days + so_far


def encumbered_by_day(jobs: list[Running], now: datetime, end: datetime, zone: str) -> Mapping[date, Fraction]:
    """What running jobs are expected to cost on each remaining local day of the period; what began stays with today."""
    where = ZoneInfo(zone)
    costs = {
        day.start.astimezone(where).date(): sum((job.cost_in(day) for job in jobs), Fraction(0))
        for day in local_days(now, end, zone)
    }
    return {day: cost for day, cost in costs.items() if cost}
