"""Where a running month will end for any scope, by the same methods and the same past as the forecast of a budget."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial

from billing.budgets.committed_forecast import as_billed, bought_ahead
from billing.budgets.forecast import Progress, forecast, withheld
from billing.budgets.history import DAY, Past, counted_through, midnight_before, past_until
from billing.budgets.scope import Scope
from billing.budgets.services.outlook import encumbered_by_day, progress_of
from billing.budgets.spending import by_team, covered, running_jobs, spent_under
from billing.rating.reference_data import ReferenceData
from metering.intervals import Interval
from pricing.money import round_amount


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected total of the month; p10 and p90 None where the past is too short for a band.

    withheld: why there is none: `silent`, `early`, `uncounted` or `history`; p50 is None then.
    """

    p50: Decimal | None = None
    p10: Decimal | None = None
    p90: Decimal | None = None
    method: str = ""
    withheld: str = ""


def expected_of(
    scope: Scope, window: Interval, spent: Decimal, now: datetime, zone: str, reference_data: ReferenceData, *, silent: bool
) -> Expected | None:
    """The forecast of a scope in the window that contains `now`; None outside it.

    `spent` is what the window costs so far; what of it is no regular usage (adjustments, corrections) does not go on.
    `reference_data`: owners and prices. `silent`: whether somebody who reports usage of the scope is silent.
    """
    if not window.start <= now < window.end:
        return None
    midnight = midnight_before(now, zone)
    start, days, elapsed = progress_of(window.start, window.end, now, zone)
    if reason := withheld(elapsed, midnight.date() - DAY, silent=silent, counted=counted_through()):
        return Expected(withheld=reason)
    history = Past(midnight.date() - DAY, []).of_scope(scope)
    today_so_far = spent_under(scope, Interval(midnight, now), reference_data) if midnight < now else Fraction(0)
    today = start + int(elapsed) * DAY
    regular = sum((amount for day, amount in history.items() if start <= day < today), Fraction(0)) + today_so_far
    jobs, by_day = running_jobs(now, reference_data), partial(encumbered_by_day, now=now, end=window.end, zone=zone)
    progress = Progress(start, days, elapsed, regular, by_day(covered(by_team(jobs), scope)))
    answer, extra = forecast(progress, history), Fraction(spent) - regular
    if answer is None:
        return Expected(withheld="history")
    bought = bought_ahead(window.end, reference_data, scope.teams, now=now, zone=zone)
    if bought:
        answer = as_billed(answer, progress, scope, bought, past_until(now, zone), jobs, by_day)
    low, high = (None if end is None else round_amount(end + extra) for end in (answer.p10, answer.p90))
    return Expected(round_amount(answer.p50 + extra), low, high, answer.method)
