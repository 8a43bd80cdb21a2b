"""Budgets: what counts as spent, and the status of each, to the cent of what a close would bill."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from billing.budgets.models import Budget, BudgetStatus, DailySpend, DailyTeamSpend
from billing.budgets.services import BudgetError, BudgetWish, budget_put, days_store, forecasts_update, standings_refresh
from billing.budgets.spending import month_lines, spent_in
from billing.invoices.models import Invoice
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, Team
from metering.intervals import billing_month
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, money, token_record

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 4, tzinfo=UTC)
ZONE = "Asia/Shanghai"


def put(team: str = "nlp", **wish) -> Budget:
    values = {"period": "month", "amount": money("1000.00"), **wish}
    code = Team.objects.get(code=team)
    budget_put(team=code, wish=BudgetWish(**values), actor="tests", approved=True)
    fields = {name: values.get(name, "") for name in ("cluster", "namespace", "consumer", "accelerator", "model")}
    return Budget.objects.get(team=code, period=values["period"], valid_from=values.get("valid_from"), **fields)


def standing(budget: Budget, now: datetime = NOW) -> BudgetStatus:
    standings_refresh(now=now)
    return budget.standings.get(start__lte=now, end__gt=now)


def test_spent_is_the_sum_of_the_lines_that_a_close_would_bill(tmp_path: Path) -> None:
    apply(tmp_path)
    budget = put()
    ingest_allocations(allocation_record(1))
    # 800 + 200 + 100 tokens: 0.0016 + 0.00004 + 0.0008, each line rounded by itself: nothing
    ingest_tokens(*(token_record(number, input_tokens=10**6, cache_read_input_tokens=0) for number in range(3)))
    # 209.62 of the devices, 3M input x 2 = 6.00, 300 output x 8 / 1M = 0.0024 -> 0.00
    assert standing(budget).spent == money("215.62")
    lines = month_lines("2026-10", ZONE)
    assert lines.preview
    assert sum(line.amount for line in lines.lines) == Fraction("215.62")


@pytest.mark.parametrize(
    ("scope", "spent"),
    [
        ({}, "215.62"),
        ({"namespace": "nlp-tr*"}, "209.62"),
        ({"cluster": "hq-2"}, "0.00"),
        ({"accelerator": "NVIDIA-H800"}, "209.62"),
        ({"accelerator": "nvidia.com/mig-1g.10gb"}, "0.00"),
        ({"model": "llama-3-8b"}, "6.00"),
        ({"consumer": "nlp-key-?"}, "6.00"),
        ({"consumer": "cv-*"}, "0.00"),
    ],
)
def test_a_scope_counts_what_matches_all_its_patterns(tmp_path: Path, scope: dict[str, str], spent: str) -> None:
    apply(tmp_path)
    budget = put(**scope)
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1, input_tokens=3 * 10**6, cache_read_input_tokens=0, output_tokens=0,
                               reasoning_output_tokens=0))  # fmt: skip
    assert standing(budget).spent == money(spent)


def test_a_group_spends_what_all_teams_below_it_spend(tmp_path: Path) -> None:
    above = [{"code": "research"}, {"code": "lab", "parent": "research"}]
    teams = [*above, {"code": "nlp", "parent": "lab"}, {"code": "cv"}]
    apply(tmp_path, teams=teams, budgets=[{"team": "research", "amount": "500.00"}, {"team": "cv", "amount": "500.00"}])
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    standings_refresh(now=NOW)
    spent = dict(BudgetStatus.objects.values_list("budget__team__code", "spent"))
    assert spent == {"research": money("209.62"), "cv": money("209.62")}


def test_running_jobs_are_encumbered_until_they_are_expected_to_end(tmp_path: Path) -> None:
    apply(tmp_path)
    budget = put()
    open_hold = {"ended_at": None, "end_reason": ""}
    ingest_allocations(
        allocation_record(1, started_at="2026-10-20T00:00:00Z", observed_until="2026-10-20T03:00:00Z", **open_hold),
        allocation_record(2, started_at="2026-10-20T00:00:00Z", observed_until="2026-10-20T03:00:00Z", quantity=1,
                          labels={"suanpan.io/planned-end": "2026-10-20T13:00:00Z"}, **open_hold),
        now=NOW,
    )  # fmt: skip
    found = standing(budget)
    assert found.spent == money("270.00")  # 3 h x 9 devices x 10
    assert found.encumbered == money("340.00")  # as long again: 3 h x 8 x 10; until its planned end: 10 h x 1 x 10
    assert standing(budget, datetime(2026, 10, 31, 15, tzinfo=UTC)).encumbered == money("340.00")


def test_nothing_is_encumbered_beyond_the_period(tmp_path: Path) -> None:
    apply(tmp_path)
    budget = put()
    ingest_allocations(
        allocation_record(1, started_at="2026-10-31T00:00:00Z", observed_until="2026-10-31T12:00:00Z", ended_at=None),
        now=datetime(2026, 10, 31, 13, tzinfo=UTC),
    )
    assert standing(budget, datetime(2026, 10, 31, 13, tzinfo=UTC)).encumbered == money("320.00")  # 12:00 to 16:00 UTC


def test_a_plan_allows_each_month_its_own_amount_and_says_nothing_about_others(tmp_path: Path) -> None:
    apply(tmp_path, budgets=[{"team": "nlp", "period": "plan", "amounts": {"2026-10": "300.00", "2026-12": "50.00"}}])
    budget = Budget.objects.get()
    assert budget.amount == money("350.00")
    assert standing(budget).amount == money("300.00")
    standings_refresh(now=datetime(2026, 11, 10, tzinfo=UTC))
    assert set(BudgetStatus.objects.values_list("period", flat=True)) == {"2026-10"}


def test_a_quarter_adds_closed_and_open_months_and_counts_late_usage_once(tmp_path: Path, transactional_db: None) -> None:
    from billing.closing.services.closing import period_close
    from billing.invoices.services.invoices import invoices_issue

    apply(tmp_path)
    budget = put(period="quarter")
    ingest_allocations(allocation_record(1))
    period_close(month="2026-10", now=datetime(2026, 11, 3, tzinfo=UTC), actor="tests")
    assert standing(budget, datetime(2026, 11, 3, tzinfo=UTC)).spent == money("209.62")
    ingest_allocations(allocation_record(2))  # late: a correction of October in the next document
    late = datetime(2026, 12, 2, tzinfo=UTC)
    assert standing(budget, late).spent == money("419.24"), "November and December are both open"
    invoices_issue(month="2026-10", now=late, actor="tests")
    assert standing(budget, late).spent == money("419.24")
    assert Invoice.objects.get().total == money("209.62")


def test_a_quarter_is_one_of_the_fiscal_year(tmp_path: Path, settings: Any) -> None:
    """Of fiscal years from December: September to November 2026 is the fourth of 2026, then the first of 2027."""
    settings.FISCAL_YEAR_START = 12
    apply(tmp_path)
    budget = put(period="quarter")
    october, december = standing(budget), standing(budget, datetime(2026, 12, 1, tzinfo=UTC))
    assert [(one.period, one.start.isoformat(), one.end.isoformat()) for one in (october, december)] == [
        ("2026-Q4", "2026-08-31T16:00:00+00:00", "2026-11-30T16:00:00+00:00"),
        ("2027-Q1", "2026-11-30T16:00:00+00:00", "2027-02-28T16:00:00+00:00"),
    ]


def test_an_older_refresh_that_ends_later_changes_nothing(tmp_path: Path) -> None:
    from billing.budgets.services import standings

    apply(tmp_path)
    budget = put()
    found = standing(budget)
    found.generation, found.spent = found.generation - 1, money("7.00")
    standings._store(found)
    assert budget.standings.get().spent == money("0.00")


def test_a_new_amount_is_a_new_revision_and_other_changes_are_not(tmp_path: Path) -> None:
    apply(tmp_path)
    assert put().revision == 1
    assert put(thresholds=(50, 90)).revision == 1
    assert put(amount=money("1500.00"), thresholds=(50, 90)).revision == 2
    entries = AuditEntry.objects.filter(action="budget_put")
    assert entries.count() == 3
    last = entries.last()
    assert last is not None
    assert (last.detail["before"]["amount"], last.detail["after"]["amount"]) == ("1000.00", "1500.00")


def test_one_scope_has_one_budget_at_a_time_and_another_after_it(tmp_path: Path) -> None:
    apply(tmp_path)
    turn = datetime(2026, 10, 31, 16, tzinfo=UTC)
    put(valid_until=turn)
    put(valid_from=turn, amount=money("2000.00"))
    with pytest.raises(BudgetError, match="another budget of the same scope"):
        put(valid_from=turn - timedelta(days=1))
    standings_refresh(now=turn - timedelta(seconds=1))
    standings_refresh(now=turn)
    amounts = BudgetStatus.objects.order_by("period").values_list("period", "amount")
    assert list(amounts) == [("2026-10", money("1000.00")), ("2026-11", money("2000.00"))]


def test_days_add_up_to_the_months_and_are_stored_once(tmp_path: Path) -> None:
    apply(tmp_path)
    budget = put()
    ingest_allocations(allocation_record(1), allocation_record(2, started_at="2026-10-12T10:00:00Z",
                       ended_at="2026-10-12T22:00:00Z", observed_until="2026-10-12T22:00:00Z"))  # fmt: skip
    assert days_store(now=NOW) == 3
    assert days_store(now=NOW) == 2, "only the newest three days that have any are summed again"
    rows = list(DailySpend.objects.order_by("day").values_list("day", "amount"))
    # 16:00 UTC is midnight: 6 h of 80 on the 12th, 6 h on the 13th
    assert [(day.day, amount) for day, amount in rows] == [
        (10, money("209.622222")), (12, money("480.000000")), (13, money("480.000000")),
    ]  # fmt: skip
    summed = list(DailyTeamSpend.objects.order_by("day").values_list("team", "day", "amount"))
    assert summed == [("nlp", day, amount) for day, amount in rows], "whole teams are asked by one row a day"
    whole = sum(item.amount for item in spent_in([billing_month("2026-10", ZONE)]))
    assert whole == Fraction(9433, 450) * 10 + 960
    assert standing(budget).spent == money("1169.62")


@pytest.mark.parametrize(
    ("begins", "gpu", "end"),
    [
        ("2026-10-20T00:00:00+08:00", {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}, "4300.00"),  # 15 + 12 x 2
        ("2026-10-20T12:00:00+08:00", {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}, "4250.00"),
        ("2026-10-20T00:00:00+08:00", {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "5"}, "2500.00"),
        ("2026-10-20T00:00:00+08:00", {"accelerator": "NVIDIA-L20", "price_per_gpu_hour": "20"}, "3100.00"),  # none: as now
        ("2026-11-01T00:00:00+08:00", {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "20"}, "3100.00"),  # too late
    ],
)
def test_a_price_that_is_published_already_counts_from_its_day_on(
    tmp_path: Path, begins: str, gpu: dict[str, str], end: str
) -> None:
    """400 in four days, 100 on each of the 27 to come at the prices of now."""
    apply(tmp_path)
    budget = put()
    _ten_hours_a_day(range(1, 5))
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": begins, "gpu": [gpu]}
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], later])
    assert _forecast_on(budget, 5).forecast_p50 == money(end)


@pytest.mark.parametrize("late", ["owner", "usage"])
def test_what_was_known_late_of_a_month_goes_on_like_the_rest_from_the_next_day_on(tmp_path: Path, late: str) -> None:
    """200 on each of twenty days, half of it known on the last of them only: 6,200 in 31 days, not 5,320."""
    nobodys = [row for row in SET_UP["ownership"] if row["namespace"] != "cv"]
    apply(tmp_path, ownership=nobodys)
    budget = put(amount=money("9000.00"))
    _ten_hours_a_day(range(1, 21))
    others = []
    for day in range(1, 21):
        start, end = (f"2026-10-{day:02d}T{hour:02d}:00:00Z" for hour in (0, 1))
        others.append(allocation_record(
            100 + day, quantity=10, namespace="cv", started_at=start, ended_at=end, observed_until=end
        ))  # fmt: skip
    mine = {"cluster": "hq-1", "namespace": "cv", "team": "nlp", "valid_from": "2026-01-01"}
    steps = [lambda: ingest_allocations(*others), lambda: apply(tmp_path, ownership=[*nobodys, mine])]
    first, second = steps if late == "owner" else reversed(steps)
    first()
    _forecast_on(budget, 20)
    second()
    found = _forecast_on(budget, 21)
    assert (found.spent, found.forecast_p50) == (money("4000.00"), money("6200.00"))


def test_what_was_spent_days_ago_makes_no_forecast(tmp_path: Path) -> None:
    """100 on each day. The team could not be summed since the 10th: 900 spent and 3,100 - 1,000 to come are no 2,100."""
    apply(tmp_path)
    budget = put(amount=money("9000.00"))
    _ten_hours_a_day(range(1, 10))
    assert _forecast_on(budget, 10).forecast_p50 == money("3100.00")
    _ten_hours_a_day(range(10, 20))
    now = datetime(2026, 10, 20, tzinfo=UTC) - timedelta(hours=8)
    days_store(now=now)
    forecasts_update(now=now)
    found = budget.standings.get()
    assert (found.forecast_p50, found.forecast_withheld) == (None, "failed")
    assert _forecast_on(budget, 20).forecast_p50 == money("3100.00")


def _ten_hours_a_day(days: range) -> None:
    for day in days:
        start = datetime(2026, 10, day, tzinfo=UTC) - timedelta(hours=6)
        over = start + timedelta(hours=10)
        record = allocation_record(
            day, quantity=1, started_at=start.isoformat(), ended_at=over.isoformat(), observed_until=over.isoformat()
        )
        ingest_allocations(record, now=over)


def _forecast_on(budget: Budget, day: int) -> BudgetStatus:
    """As of local midnight at the start of that day of October; usage of later hours is known already."""
    now = datetime(2026, 10, day, tzinfo=UTC) - timedelta(hours=8)
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    return budget.standings.get()


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        ({"period": "week"}, "period"),
        ({"period": "plan"}, "amounts"),
        ({"period": "plan", "amounts": {"october": "1.00"}}, "amounts.october"),
        ({"period": "plan", "amounts": {"2026-10": "-1"}}, "amounts.2026-10"),
        ({"ladder": [{"at": "80", "action": "kill"}]}, "ladder[0].action"),
        ({"ladder": [{"at": "80", "action": "rate_limit", "tokens_per_minute": "10", "floor": "20"}]}, "ladder[0].floor"),
        ({"forecast_thresholds": ["x"]}, "forecast_thresholds"),
        ({"recipients": "nobody"}, "recipients"),
        ({"colour": "red"}, "colour"),
        ({"reservation": "1.00001"}, "reservation"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_by_field(tmp_path: Path, budget: dict, field: str) -> None:
    wanted = {"team": "nlp", "amount": "1.00", **budget}
    if budget.get("period") == "plan":
        wanted.pop("amount")
    with pytest.raises(SetUpFileError) as caught:
        apply(tmp_path, budgets=[wanted])
    assert f"budgets[0].{field}" in str(caught.value)
    assert not Budget.objects.exists()


def test_the_file_sets_channels_recipients_and_ladder_and_is_idempotent(tmp_path: Path) -> None:
    secret = "json://alerts.example.com/very-secret"
    sections = {
        "channels": [{"name": "nlp-hook", "url": secret, "team": "nlp", "digest_at": "08:30"}],
        "budgets": [
            {"team": "nlp", "amount": "10.00", "owner": "Ann", "recipients": ["ann@example.com", "nlp-hook"],
             "ladder": [{"at": "80", "action": "rate_limit", "tokens_per_minute": "1000", "floor": "10"}],
             "reservation": "0.0500"}
        ],
    }  # fmt: skip
    first = apply(tmp_path, **sections)
    assert any("channel nlp-hook" in change for change in first.changes)
    assert apply(tmp_path, **sections).changes == []
    budget = Budget.objects.get()
    assert sorted(channel.name for channel in budget.channels.all()) == ["ann@example.com", "nlp-hook"]
    assert (budget.reservation, budget.ladder.get().floor_tokens_per_minute) == (money("0.0500"), 10)
    assert not AuditEntry.objects.filter(detail__icontains="very-secret").exists()
    other = [{"team": "cv", "amount": "10.00", "recipients": ["nlp-hook"]}]
    with pytest.raises(SetUpFileError, match="no channel that cv may use"):
        apply(tmp_path, budgets=other)


def test_an_address_that_apprise_does_not_know_is_refused_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError) as caught:
        apply(tmp_path, channels=[{"name": "x", "url": "nonsense://token-abc"}])
    assert "token-abc" not in str(caught.value)


def test_the_set_up_of_the_contract_still_works(tmp_path: Path) -> None:
    assert "budgets" not in SET_UP
    apply(tmp_path, budgets=[{"team": "nlp", "period": "month", "amount": "100000.00", "thresholds": [50, 80, 100]}])
    budget = Budget.objects.get()
    assert (budget.amount, budget.thresholds, budget.forecast_thresholds) == (Decimal("100000.00"), [50, 80, 100], [100])
