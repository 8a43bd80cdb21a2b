"""The forecast back-tested on 149 days of a production GPU cluster, against the naive line.

Only what was known on the day of the question is used: methods are chosen by earlier windows, running pods are expected
to go on for as long again as they ran. The token trace covers one hour of one day and says nothing about months.
"""

import csv
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from billing.budgets.forecast import Forecast, Progress, forecast, line
from metering.intervals import Interval
from tests.factories.traces import trace_converted

DAY = timedelta(days=1)
MONTH = 30
ASKED_ON = (5, 10, 15, 20)
LEARNT_FROM = 50
Pod = tuple[str, Interval, Fraction]


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> list[Pod]:
    """(namespace, time held, devices) of every pod; a device-hour costs 1."""
    made = trace_converted("gpu", "openb_pod_list_default.csv", tmp_path_factory.mktemp("traces") / "gpu.csv")
    return [
        (
            row["namespace"],
            Interval(datetime.fromisoformat(row["started_at"]), datetime.fromisoformat(row["ended_at"])),
            Fraction(row["device_fraction"]) * int(row["quantity"]),
        )
        for row in csv.DictReader(made.read_text().splitlines())
    ]


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def by_day(pods: list[Pod]) -> dict[date, Fraction]:
    """Device-hours per whole day of the trace."""
    sums: dict[date, Fraction] = defaultdict(Fraction)
    first = min(held.start for _, held, _ in pods).date()
    last = max(held.end for _, held, _ in pods).date()
    for _, held, devices in pods:
        day = held.start.date()
        while midnight(day) < held.end:
            part = held.overlap(Interval(midnight(day), midnight(day + DAY)))
            if part is not None:
                sums[day] += devices * Fraction(part.microseconds, 3_600_000_000)
            day += DAY
    return {first + number * DAY: sums[first + number * DAY] for number in range((last - first).days)}


def encumbered(pods: list[Pod], now: datetime, until: date) -> dict[date, Fraction]:
    """What pods that run now cost on each following day if each goes on for as long again as it ran."""
    running = [(devices, now + (now - held.start)) for _, held, devices in pods if held.start < now < held.end]
    costs: dict[date, Fraction] = {}
    day = now.date()
    while day < until:
        whole = Interval(midnight(day), midnight(day + DAY))
        ends = ((devices, min(end, whole.end)) for devices, end in running if end > whole.start)
        costs[day] = sum((devices * Fraction((end - whole.start) // timedelta(microseconds=1), 3_600_000_000)
                          for devices, end in ends), Fraction(0))  # fmt: skip
        day += DAY
    return costs


def asked(pods: list[Pod], history: dict[date, Fraction], start: date, elapsed: int) -> tuple[Fraction, Fraction, Forecast]:
    """What came, what the line said, and what the forecast said on that day of the window."""
    now = start + elapsed * DAY
    window = [history[start + number * DAY] for number in range(MONTH)]
    known = {day: amount for day, amount in history.items() if day < now}
    costs = encumbered(pods, midnight(now), start + MONTH * DAY)
    progress = Progress(start, MONTH, Fraction(elapsed), sum(window[:elapsed], Fraction(0)), costs)
    answer, naive = forecast(progress, known), line(progress, known)
    assert answer is not None
    assert naive is not None
    return sum(window, Fraction(0)), naive, answer


def test_the_forecast_errs_less_than_the_line(pods: list[Pod], capsys: pytest.CaptureFixture[str]) -> None:
    """Error = sum of |forecast - actual| over sum of actual, all windows and days; printed by scope for the README."""
    totals = {"line": Fraction(0), "forecast": Fraction(0), "actual": Fraction(0)}
    inside = banded = 0
    lines = ["scope        day  windows   line  forecast"]
    scopes = {"all": pods} | {name: [pod for pod in pods if pod[0] == name] for name in sorted({pod[0] for pod in pods})}
    for name, own in scopes.items():
        history = by_day(own)
        first, days = min(history), len(history)
        starts = [first + number * DAY for number in range(LEARNT_FROM, days - MONTH + 1, 5)]
        for elapsed in ASKED_ON:
            answers = [asked(own, history, start, elapsed) for start in starts]
            actual = sum((came for came, _, _ in answers), Fraction(0))
            naive = sum((abs(said - came) for came, said, _ in answers), Fraction(0))
            ours = sum((abs(answer.p50 - came) for came, _, answer in answers), Fraction(0))
            bands = [(came, answer) for came, _, answer in answers if answer.p10 is not None]
            banded += len(bands)
            inside += sum(answer.p10 <= came <= answer.p90 for came, answer in bands)
            if actual:
                lines.append(f"{name:<12} {elapsed:>3}  {len(starts):>7}  {float(naive / actual):>5.1%}  "
                             f"{float(ours / actual):>7.1%}")  # fmt: skip
            for key, value in (("line", naive), ("forecast", ours), ("actual", actual)):
                totals[key] += value
    overall = {key: float(totals[key] / totals["actual"]) for key in ("line", "forecast")}
    with capsys.disabled():
        print("\n" + "\n".join(lines))
        print(f"over all: line {overall['line']:.1%}, forecast {overall['forecast']:.1%}; in the band {inside} of {banded}")
    assert totals["forecast"] < totals["line"]
