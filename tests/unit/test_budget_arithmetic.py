"""Forecast, thresholds, burn rate, ladder and anomaly score, by hand."""

import doctest
from datetime import date, timedelta
from fractions import Fraction

import pytest

from billing.budgets import anomaly, forecast, thresholds
from billing.budgets.forecast import Progress, Trial, back_test, error_of, recent, weekday
from billing.budgets.thresholds import BURN_RULES, Rung, actions_asked, burn_rate, burning, reached

MONDAY = date(2026, 6, 1)
DAY = timedelta(days=1)


def weeks(count: int, working: int, weekend: int) -> dict[date, Fraction]:
    days = (MONDAY + number * DAY for number in range(7 * count))
    return {day: Fraction(weekend if day.weekday() >= 5 else working) for day in days}


@pytest.mark.parametrize("module", [anomaly, forecast, thresholds])
def test_examples(module) -> None:
    assert doctest.testmod(module).failed == 0


def test_the_weekday_method_knows_weekends_and_the_line_does_not() -> None:
    history = weeks(9, 100, 0)
    # Monday 27 July, 28 days; after 5 working days 500 are spent; three weeks and a weekend to go: 15 x 100 more
    progress = Progress(date(2026, 7, 27), 28, Fraction(5), Fraction(500))
    assert weekday(progress, history) == 2000
    assert forecast.line(progress, history) == 2800
    assert recent(progress, history) == 500 + 23 * Fraction(1000, 14)  # 10 paid days of the last 14


def test_the_rest_of_today_counts_as_the_part_of_the_day_that_is_left() -> None:
    history = weeks(8, 100, 0)
    progress = Progress(date(2026, 7, 27), 7, Fraction(9, 2), Fraction(450))  # Friday noon
    assert weekday(progress, history) == 500


def test_running_jobs_raise_a_day_that_is_usually_quiet_and_are_not_counted_twice_on_a_busy_one() -> None:
    history = weeks(8, 100, 0)
    saturday, friday = date(2026, 8, 1), date(2026, 7, 31)
    encumbered = {friday: Fraction(40), saturday: Fraction(70)}
    progress = Progress(date(2026, 7, 27), 7, Fraction(4), Fraction(400), encumbered)
    assert weekday(progress, history) == 400 + 100 + 70


def test_every_method_asks_what_the_days_to_come_cost_then() -> None:
    """Monday 27 July, two weeks; 500 in five days, 900 to come at the prices of now; from 3 August on half as much again."""
    history = {day: Fraction(100) for day in weeks(9, 100, 0)}
    dearer = {date(2026, 8, 3) + number * forecast.DAY: Fraction(3, 2) for number in range(7)}
    progress = Progress(date(2026, 7, 27), 14, Fraction(5), Fraction(500), dearer=dearer)
    assert {name: method(progress, history) for name, method in forecast.METHODS.items()} == dict.fromkeys(
        forecast.METHODS, Fraction(500 + 200 + 1050)
    )


def test_the_method_that_erred_least_is_chosen_and_shown() -> None:
    today = date(2026, 8, 29)
    history = {day: amount for day, amount in weeks(13, 100, 0).items() if day < today}
    answer = forecast.forecast(Progress(date(2026, 8, 24), 31, Fraction(5), Fraction(500)), history)
    assert answer is not None
    assert set(answer.errors) == set(forecast.METHODS)
    assert (answer.method, answer.errors["weekday"], answer.p50) == ("weekday", 0, 2300)  # 31 days from a Monday: 23 paid
    assert answer.errors["line"] > 0
    assert (answer.p10, answer.p90) == (2300, 2300)
    assert answer.windows == 8  # they start on days 58, 53 ... 23 of 89; before that fewer than 28 days lie behind


def test_a_trend_goes_on_and_never_below_zero() -> None:
    falling = {MONDAY + number * DAY: Fraction(max(0, 60 - 2 * number)) for number in range(30)}
    progress = Progress(MONDAY + 20 * DAY, 15, Fraction(10), Fraction(110))  # 20, 18 ... 2 were spent; 0 is next
    assert forecast.trend(progress, falling) == 110
    wild = {**falling, MONDAY + 25 * DAY: Fraction(5000)}
    assert forecast.trend(progress, wild) == 110, "one wild day bends nothing"
    assert forecast.pace(progress, falling) == 110 + 5 * 4  # 6, 4 and 2 on the last days


def test_without_a_past_the_line_is_published_without_a_band() -> None:
    answer = forecast.forecast(Progress(MONDAY, 30, Fraction(3), Fraction(30)), {})
    assert answer is not None
    assert (answer.method, answer.p50, answer.p10, answer.p90, dict(answer.errors)) == ("line", 300, None, None, {})


@pytest.mark.parametrize(("elapsed", "given"), [(Fraction(2), False), (Fraction(299, 100), False), (Fraction(3), True)])
def test_nothing_is_forecast_before_three_days(elapsed: Fraction, given: bool) -> None:
    assert (forecast.forecast(Progress(MONDAY, 30, elapsed, Fraction(9)), weeks(8, 1, 1)) is not None) == given


def test_a_quiet_month_and_a_quiet_past_are_zero_not_an_error() -> None:
    answer = forecast.forecast(Progress(date(2026, 8, 3), 30, Fraction(5), Fraction(0)), weeks(9, 0, 0))
    assert answer is not None
    assert (answer.p50, answer.errors) == (0, {})


def test_the_back_test_never_looks_ahead() -> None:
    history = weeks(12, 100, 0)
    for trial in back_test(history, days=28, at_day=7)["weekday"]:
        assert (trial.spent, trial.actual, trial.forecast) == (500, 2000, 2000)
    last = max(history)
    changed = {**history, last: Fraction(10_000)}
    before, after = (back_test(known, days=28, at_day=7)["weekday"] for known in (history, changed))
    assert [trial.forecast for trial in before] == [trial.forecast for trial in after]
    assert after[0].actual == 12_000


def test_the_error_of_trials() -> None:
    trials = [Trial(Fraction(90), Fraction(100), Fraction(0)), Trial(Fraction(130), Fraction(100), Fraction(0))]
    assert error_of(trials) == Fraction(40, 200)
    assert error_of([]) is None
    assert error_of([Trial(Fraction(5), Fraction(0), Fraction(0))]) is None


def test_burn_rate_pages_on_a_fast_burn_that_goes_on_and_not_on_one_that_ended_or_is_small() -> None:
    month, rule = timedelta(days=30), BURN_RULES[0]
    # 72,000 in 720 hours are 100 an hour; 6 x that over 6 hours are 3,600
    assert burn_rate(Fraction(3600), rule.window, Fraction(72_000), month) == 6
    assert burning(rule, Fraction(3600), Fraction(300), Fraction(72_000), month)
    assert not burning(rule, Fraction(3599), Fraction(300), Fraction(72_000), month)
    assert not burning(rule, Fraction(3600), Fraction(299), Fraction(72_000), month), "the last half hour is slower"
    year = timedelta(days=360)
    assert not burning(rule, Fraction(719), Fraction(100), Fraction(72_000), year), "below 1 % of the budget"
    assert burning(rule, Fraction(720), Fraction(100), Fraction(72_000), year)


def test_a_threshold_is_reached_at_equality() -> None:
    assert reached(Fraction(49999, 100), Fraction(1000), [50]) == []
    assert reached(Fraction(500), Fraction(1000), [100, 50]) == [50]


def test_the_ladder_asks_from_mild_to_hard() -> None:
    ladder = [Rung(100, "cap"), Rung(80, "require_approver"), Rung(90, "rate_limit", 10_000, 1_000)]
    asked = actions_asked(Fraction(95), Fraction(100), ladder)
    assert [(item.action, item.tokens_per_minute) for item in asked] == [("require_approver", None), ("rate_limit", 5500)]
    assert [item.action for item in actions_asked(Fraction(100), Fraction(100), ladder)][-1] == "cap"
    assert actions_asked(Fraction(79), Fraction(100), ladder) == []


def test_days_are_compared_with_days_of_their_kind() -> None:
    history = weeks(8, 100, 10)
    saturday = MONDAY + 61 * DAY
    assert saturday.weekday() == 5
    assert set(anomaly.comparable(history, saturday)) == {10}
    assert len(anomaly.comparable(history, saturday)) == 14


def test_without_spread_five_percent_of_the_median_is_the_scale() -> None:
    found = anomaly.score([Fraction(100)] * 10, Fraction(150))
    assert (found.mad, found.z) == (0, Fraction(6745, 1000))  # 0.6745 x 50 / 5


def test_few_days_ask_the_peers_and_no_peers_say_nothing() -> None:
    few, peers = [Fraction(1)] * 9, [Fraction(x) for x in (99, 101, 99, 101, 99, 101, 99, 101, 100, 100)]
    found = anomaly.judged(few, lambda: peers, Fraction(112))
    assert found is not None
    assert (found[1], found[0].z) == ("peers", Fraction(6745, 10000) * 12)
    assert anomaly.judged(few, lambda: peers[:9], Fraction(112)) is None
    assert anomaly.judged([Fraction(0)] * 12, list, Fraction(112)) is None, "no scale of its own and nobody to compare with"


def test_an_anomaly_needs_a_high_score_and_real_money() -> None:
    found = anomaly.score([Fraction(x) for x in (990, 1010) * 5], Fraction(1600))
    assert anomaly.is_anomaly(found, threshold=Fraction(6), impact=anomaly.least_impact(None))
    assert not anomaly.is_anomaly(found, threshold=Fraction(6), impact=anomaly.least_impact(Fraction(6001)))
    assert not anomaly.is_anomaly(found, threshold=found.z + 1, impact=Fraction(1))
