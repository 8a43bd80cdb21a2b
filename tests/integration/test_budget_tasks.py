"""The scheduler's tasks of budgets: what fails in one of them stops as little as possible."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.budgets import tasks
from billing.budgets.models import Alert, Budget, BudgetStatus, DailyTeamSpend
from billing.budgets.services import standings
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record, watched
from tests.factories.team_faults import committed_is

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nlp and cv spent 80.00 each of 100.00."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    budgets = [
        {"team": team, "amount": "100.00", "valid_from": "2026-10-01", "thresholds": [80]} for team in ("nlp", "cv")
    ]
    dear = {"model": "dear", "input": "1000000.0000", "cache_read": "0", "output": "1000000.0000"}
    theirs = {"source": "litellm-hq", "consumer": "cv-key", "team": "cv", "valid_from": "2026-01-01"}
    prices = [{**SET_UP["price_versions"][0], "tokens": [dear]}]
    apply(tmp_path, budgets=budgets, price_versions=prices, consumers=[theirs])
    held = {
        "started_at": "2026-10-19T00:00:00Z", "ended_at": "2026-10-19T01:00:00Z", "observed_until": "2026-10-19T01:00:00Z",
    }  # fmt: skip
    ingest_allocations(allocation_record(1, **held), allocation_record(2, namespace="cv", **held), now=NOW)


def reached() -> list[str]:
    return list(Alert.objects.filter(kind="threshold").order_by("team__code").values_list("team__code", flat=True))


def test_thresholds_fire_though_no_forecast_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    standings.standings_refresh(now=NOW)  # the first look, which finds no forecast

    def failing(*, now: datetime) -> int:
        raise ArithmeticError("too large")

    monkeypatch.setattr("billing.budgets.services.days_store", failing)
    with pytest.raises(ArithmeticError, match="too large"):
        tasks.budgets_evaluate()
    assert reached() == ["cv", "nlp"]


def test_a_budget_that_cannot_be_summed_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = standings._row

    def failing(budget: Budget, *how: Any) -> BudgetStatus:
        if budget.team.code == "cv":
            raise ArithmeticError("too large")
        return row(budget, *how)

    monkeypatch.setattr(standings, "_row", failing)
    tasks.budgets_evaluate()
    assert reached() == ["nlp"]
    assert [(row.budget.team.code, row.spent) for row in BudgetStatus.objects.all()] == [("nlp", Decimal("80.00"))]
    assert "ArithmeticError: too large" in caplog.text


def test_a_sum_beyond_all_sense_is_stored_as_it_is_and_holds_up_nobody() -> None:
    """cv: 500 requests of 2 x 10^15 tokens at 1,000,000 per million make 10^18, beside 80.00. nlp: 80.00 on 16 days."""
    for day in range(4, 19):
        start, end = (f"2026-10-{day:02d}T0{hour}:00:00Z" for hour in (0, 1))
        ingest_allocations(allocation_record(100 + day, started_at=start, ended_at=end, observed_until=end), now=NOW)
    most = {"input_tokens": 10**15, "cache_read_input_tokens": 0, "output_tokens": 10**15, "reasoning_output_tokens": 0}
    ingest_tokens(*(
        token_record(number, consumer="cv-key", model="dear", time="2026-10-19T00:30:00Z", **most) for number in range(500)
    ), now=NOW)  # fmt: skip
    watched(NOW)
    tasks.budgets_evaluate()
    tasks.outlook_update()
    kept = {row.budget.team.code: row for row in BudgetStatus.objects.all()}
    assert {code: row.spent for code, row in kept.items()} == {"cv": Decimal(10**18 + 80), "nlp": Decimal("1280.00")}
    assert (kept["cv"].forecast_withheld, kept["nlp"].forecast_withheld) == ("history", "")
    assert kept["nlp"].forecast_p50 == Decimal("2000.67")  # 1280 x 31 / (19 + 20/24) days
    assert reached() == ["cv", "nlp"]
    assert Alert.objects.get(kind="threshold", team__code="cv").value == Decimal(10**18 + 80)
    days = DailyTeamSpend.objects.filter(day="2026-10-19").order_by("team").values_list("team", "amount")
    assert list(days) == [("cv", Decimal(10**18 + 80)), ("nlp", Decimal(80))]


def committed(directory: Path, **changed: str) -> None:
    """cv has bought hours, of which nobody can say how many."""
    bought = {
        "name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "10",
        "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01", **changed,
    }  # fmt: skip
    apply(directory, price_versions=None, commitments=[bought])
    committed_is("NaN")


def test_a_forecast_that_cannot_be_made_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for day in range(4, 19):
        start, end = (f"2026-10-{day:02d}T0{hour}:00:00Z" for hour in (0, 1))
        both = {"started_at": start, "ended_at": end, "observed_until": end}
        theirs = allocation_record(200 + day, namespace="cv", **both)
        ingest_allocations(allocation_record(100 + day, **both), theirs, now=NOW)
    watched(NOW)
    tasks.budgets_evaluate()
    tasks.outlook_update()
    made = BudgetStatus.objects.order_by("budget__team__code").values_list("forecast_p50", "forecast_withheld")
    assert list(made) == [(Decimal("2000.67"), "")] * 2  # 1280 x 31 / (19 + 20/24) days
    committed(tmp_path)
    tasks.outlook_update()
    assert list(made.all()) == [(None, "failed"), (Decimal("2000.67"), "")]
    assert "cv: ValueError: cannot convert NaN to integer ratio" in caplog.text


def test_what_is_contracted_and_cannot_be_summed_holds_up_the_alerts_of_no_other_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Budget.objects.filter(team__code="cv").update(period="quarter", commitment_thresholds=[80])
    committed(tmp_path, valid_from="2026-11-01")
    tasks.budgets_evaluate()
    assert reached() == ["cv", "nlp"], "what is spent needs no contract"
    assert "cv quarter 2026-Q4 failed, the others go on" in caplog.text


def test_thresholds_fire_though_it_cannot_be_said_how_fast_budgets_burn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any) -> None:
        raise ArithmeticError("too large")

    monkeypatch.setattr("billing.budgets.services.alerts.spent_in", failing)
    tasks.budgets_evaluate()
    assert reached() == ["cv", "nlp"]
    assert "ArithmeticError: too large" in caplog.text
