"""PURE: forecast of a period's spending by several methods, the one with the smallest back-tested error first.

Amounts are exact rationals of the billing currency per local day. A *history* holds every complete day of the scope, also
days without spending. Methods are compared on windows as long as the period, at the same day of the window as now; the
band comes from the errors of the chosen method there. A method that lacks data returns None: unknown is not zero.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from statistics import median, quantiles
from typing import Final

DAY: Final = timedelta(days=1)
FEWEST_DAYS: Final = 3
"""Number of days of a period that must pass before it is forecast (OCI withholds its forecast likewise)."""
TRAINING_DAYS: Final = 56
WEEKDAYS_NEED: Final = 14
TREND_DAYS: Final = 28
BACK_TEST_DAYS: Final = 92
WINDOW_STEP: Final = 5
BAND_NEEDS: Final = 5

History = Mapping[date, Fraction]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a period: `spent` in its first `elapsed` of `days` days; it began on `start`.

    `encumbered`: expected cost of running jobs per remaining day, today's rest included. `dearer`: cost of a remaining
    day as a multiple of the same day at current prices, where published prices change.
    """

    start: date
    days: int
    elapsed: Fraction
    spent: Fraction
    encumbered: Mapping[date, Fraction] = field(default_factory=dict)
    dearer: Mapping[date, Fraction] = field(default_factory=dict)

    def end_at(self, usual: Callable[[date], Fraction]) -> Fraction:
        """Return `spent` plus, for each remaining day, the usual cost or, if more, that of running jobs, at its prices."""
        end = self.spent
        for day, left in self.rest():
            cost = max(left * usual(day), self.encumbered.get(day, Fraction(0)))
            end += cost * self.dearer.get(day, Fraction(1))
        return end

    def rest(self) -> Iterable[tuple[date, Fraction]]:
        """Yield each remaining day with the part of it that is left, in (0, 1]."""
        whole = int(self.elapsed)
        for number in range(whole, self.days):
            left = Fraction(whole + 1) - self.elapsed if number == whole else Fraction(1)
            yield self.start + number * DAY, left


Method = Callable[[Progress, History], Fraction | None]


def line(progress: Progress, history: History) -> Fraction | None:
    """Forecast F-1: spending continues at the mean rate of the period so far, at the prices of each day.

    >>> line(Progress(date(2026, 10, 1), 31, Fraction(9), Fraction(42000)), {})
    Fraction(434000, 3)
    """
    if not progress.elapsed:
        return None
    days = sum((left * progress.dearer.get(day, Fraction(1)) for day, left in progress.rest()), Fraction(0))
    return progress.spent + progress.spent / progress.elapsed * days


def weekday(progress: Progress, history: History) -> Fraction | None:
    """Forecast F-2: actual + for each remaining day the median of its weekday, but at least what running jobs will cost."""
    past = _latest(history, progress.start + int(progress.elapsed) * DAY, TRAINING_DAYS)
    if len(past) < WEEKDAYS_NEED:
        return None
    alike = {number: [amount for day, amount in past if day.weekday() == number] for number in range(7)}
    usual = {number: median(amounts or [amount for _, amount in past]) for number, amounts in alike.items()}
    return progress.end_at(lambda day: usual[day.weekday()])


def mean_of_last(days: int, *, needs: int) -> Method:
    """Return a method: actual + the mean of the last complete days per remaining day, at least the cost of running jobs."""

    def method(progress: Progress, history: History) -> Fraction | None:
        past = _latest(history, progress.start + int(progress.elapsed) * DAY, days)
        if len(past) < needs:
            return None
        usual = sum((amount for _, amount in past), Fraction(0)) / len(past)
        return progress.end_at(lambda day: usual)

    return method


recent = mean_of_last(14, needs=7)
pace = mean_of_last(3, needs=3)


def trend(progress: Progress, history: History) -> Fraction | None:
    """Forecast actual + a straight line through the last four weeks, continued, never below zero.

    Slope and level are medians over all pairs of days (Theil and Sen), so that a few wild days bend nothing.

    >>> days = {date(2026, 9, 1) + number * DAY: Fraction(number) for number in range(30)}
    >>> trend(Progress(date(2026, 9, 29), 5, Fraction(2), Fraction(57)), days)  # 30, 31 and 32 are to come
    Fraction(150, 1)
    """
    before = progress.start + int(progress.elapsed) * DAY
    past = [float(amount) for _, amount in _latest(history, before, TREND_DAYS)]  # floats suffice for an estimate
    if len(past) < TREND_DAYS:
        return None
    count = len(past)
    slope = median([(past[b] - past[a]) / (b - a) for a in range(count) for b in range(a + 1, count)])
    level = median([amount + slope * (count - 1 - number) for number, amount in enumerate(past)])
    ahead = [(number, float(left * progress.dearer.get(day, Fraction(1)))) for number, (day, left) in
             enumerate(progress.rest(), start=1)]  # fmt: skip
    return progress.spent + Fraction(sum(days * max(0.0, level + slope * number) for number, days in ahead))


METHODS: Final[dict[str, Method]] = {"weekday": weekday, "recent": recent, "pace": pace, "trend": trend, "line": line}
"""Methods by name; among equal errors the earlier one is chosen."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Back-test of a method in a past window: its forecast on that day, the actual total, and what was spent until then."""

    forecast: Fraction
    actual: Fraction
    spent: Fraction


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast total of the period: `p50` by the method, and a band of 8 in 10 if there are enough past windows.

    `errors` is the back-tested error per method, Σ|forecast - actual| / Σ actual, over `windows` past windows.
    """

    method: str
    p50: Fraction
    p10: Fraction | None
    p90: Fraction | None
    errors: Mapping[str, Fraction]
    windows: int


def withheld(elapsed: Fraction, yesterday: date, *, silent: bool, counted: date | None) -> str:
    """Return why no forecast may be made: `silent`, `early`, `uncounted`, or empty if it may.

    silent: a reporter of the scope's usage is silent. counted: last day of the stored past; a period with
    days missing from it would look as if hardly anything was used.

    >>> withheld(Fraction(22), date(2026, 11, 22), silent=False, counted=date(2026, 11, 21))
    'uncounted'
    """
    if silent:
        return "silent"
    if elapsed < FEWEST_DAYS:
        return "early"
    return "uncounted" if counted is None or counted < yesterday else ""


def forecast(progress: Progress, history: History) -> Forecast | None:
    """Return the forecast of the method that erred least; None before three days, or if no method has data.

    Also None if spending began less than three days ago: the mean of the period would treat the days before as usual.
    """
    if progress.elapsed < FEWEST_DAYS or 0 < len(history) < FEWEST_DAYS:
        return None
    trials = back_test(history, days=progress.days, at_day=int(progress.elapsed))
    answers = {name: answer for name, method in METHODS.items() if (answer := method(progress, history)) is not None}
    if not answers:
        return None
    errors = {name: error for name in answers if (error := error_of(trials[name])) is not None}
    order = list(METHODS)
    chosen = min(answers, key=lambda name: (name not in errors, errors.get(name, Fraction(0)), order.index(name)))
    if not errors:
        chosen = "line"  # no back-test: the plain line needs no past
    band = _band(progress.spent, answers[chosen], trials[chosen])
    return Forecast(chosen, answers[chosen], *band, errors, len(trials[chosen]))


def back_test(history: History, *, days: int, at_day: int) -> dict[str, list[Trial]]:
    """Run every method on windows of `days` days that lie wholly in the history, after `at_day` days of each.

    A window is judged only if every method had data, so that all are measured by the same yardstick.
    """
    trials: dict[str, list[Trial]] = {name: [] for name in METHODS}
    if not history or not 0 < at_day < days:
        return trials
    for start in _window_starts(history, days):
        amounts = [history[start + number * DAY] for number in range(days)]
        spent, actual = sum(amounts[:at_day], Fraction(0)), sum(amounts, Fraction(0))
        progress = Progress(start, days, Fraction(at_day), spent)
        answers = {name: method(progress, history) for name, method in METHODS.items()}
        if all(answer is not None for answer in answers.values()):
            for name, answer in answers.items():
                trials[name].append(Trial(answer or Fraction(0), actual, spent))
    return trials


def error_of(trials: Sequence[Trial]) -> Fraction | None:
    """Return Σ|forecast - actual| / Σ actual; None without trials or if nothing was spent."""
    actual = sum((trial.actual for trial in trials), Fraction(0))
    return sum((abs(trial.forecast - trial.actual) for trial in trials), Fraction(0)) / actual if actual > 0 else None


def _band(
    spent: Fraction, answer: Fraction, trials: Sequence[Trial]
) -> tuple[Fraction | None, Fraction | None]:
    """Return p10 and p90: the remaining cost times the ratios of actual to forecast remainders; p50 lies between them."""
    ratios = [
        (trial.actual - trial.spent) / (trial.forecast - trial.spent) for trial in trials if trial.forecast > trial.spent
    ]
    if len(ratios) < BAND_NEEDS:
        return None, None
    rest, (lowest, *_, highest) = answer - spent, quantiles(ratios, n=10, method="inclusive")
    low, high = spent + rest * lowest, spent + rest * highest
    return min(low, answer), max(high, answer)


def _window_starts(history: History, days: int) -> list[date]:
    first, last = min(history), max(history)
    newest = last - (days - 1) * DAY
    oldest = max(first, newest - BACK_TEST_DAYS * DAY)
    count = max(0, (newest - oldest).days // WINDOW_STEP + 1) if newest >= oldest else 0
    return [newest - number * WINDOW_STEP * DAY for number in range(count)]


def _latest(history: History, before: date, days: int) -> list[tuple[date, Fraction]]:
    """Return the complete days among the last `days` before a day."""
    wanted = (before - number * DAY for number in range(days, 0, -1))
    return [(day, history[day]) for day in wanted if day in history]
