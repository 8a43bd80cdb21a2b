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
