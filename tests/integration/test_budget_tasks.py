"""The scheduler's tasks of budgets: what fails in one of them stops as little as possible."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.budgets import tasks
from billing.budgets.models import Alert, Budget, BudgetStatus
from billing.budgets.services import standings
from tests.factories import allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nlp and cv spent 80.00 each of 100.00."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    budgets = [
        {"team": team, "amount": "100.00", "valid_from": "2026-10-01", "thresholds": [80]} for team in ("nlp", "cv")
    ]
    apply(tmp_path, budgets=budgets)
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
