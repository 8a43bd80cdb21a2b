"""What running jobs of a team that has bought hours are expected to cost, by hand: list price 10.00, bought hours 8.00."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.services import standings_refresh
from billing.closing.services.closing import period_close
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, known_accelerators

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 12, tzinfo=UTC)
BOUGHT = {
    "name": "nlp-h800", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "100",
    "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01",
}  # fmt: skip


def run(number: int, start: str, seen: str, until: str = "", **changed: Any) -> dict[str, Any]:
    """A job of 8 devices that was seen running, and where it said so the instant at which it plans to end."""
    labels = {"labels": {"suanpan.io/planned-end": until}} if until else {}
    return allocation_record(
        number, started_at=start, observed_until=seen, ended_at=None, end_reason="", **labels, **changed
    )


def prepared(directory: Path, *jobs: dict[str, Any], now: datetime = NOW, bought: Any = BOUGHT, **scope: str) -> Budget:
    budget = {"team": "nlp", "amount": "5000.00", "valid_from": "2026-10-01", **scope}
    known_accelerators("NVIDIA-A800")
    apply(directory, budgets=[budget], commitments=[bought] if bought else [])
    ingest_allocations(*jobs, now=now)
    return Budget.objects.get()


def expected(budget: Budget, now: datetime = NOW) -> tuple[Decimal, Decimal]:
    """Spent and encumbered."""
    standings_refresh(now=now)
    found: BudgetStatus = budget.standings.get(start__lte=now, end__gt=now)
    return found.spent, found.encumbered


def test_hours_that_are_bought_cost_nothing_more_and_those_beyond_their_list_price(tmp_path: Path) -> None:
    """80 hours were used and 20 are left: 80 x 8 + 20 x 8 are spent; of 80 more, 20 are bought and 60 are not."""
    budget = prepared(tmp_path, run(1, "2026-10-20T00:00:00Z", "2026-10-20T10:00:00Z"))
    assert expected(budget) == (Decimal("800.00"), Decimal("600.00"))


def test_all_that_is_left_may_be_enough(tmp_path: Path) -> None:
    """24 of 100 hours were used, 24 more are expected."""
    budget = prepared(tmp_path, run(1, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z"))
    assert expected(budget) == (Decimal("800.00"), Decimal("0.00"))


def test_a_budget_of_a_namespace_pays_for_bought_hours_as_they_are_used(tmp_path: Path) -> None:
    """It has none of the unused hours: 80 x 8 are spent, of 80 more 20 cost 8 and 60 cost 10."""
    budget = prepared(tmp_path, run(1, "2026-10-20T00:00:00Z", "2026-10-20T10:00:00Z"), namespace="nlp-*")
    assert expected(budget) == (Decimal("640.00"), Decimal("760.00"))


def test_two_jobs_share_what_is_left_once(tmp_path: Path) -> None:
    """40 + 40 hours were used; of 40 + 40 more, 20 are bought: 60 at 10."""
    jobs = (
        run(1, "2026-10-20T05:00:00Z", "2026-10-20T10:00:00Z"),
        run(2, "2026-10-20T05:00:00Z", "2026-10-20T10:00:00Z", namespace="nlp-eval"),
    )
    assert expected(prepared(tmp_path, *jobs)) == (Decimal("800.00"), Decimal("600.00"))


@pytest.mark.parametrize("changed", [{"accelerator": "NVIDIA-A800"}, {"valid_from": "2026-11-01"}])
def test_what_the_hours_do_not_cover_is_at_list_price(tmp_path: Path, changed: dict[str, str]) -> None:
    bought = {**BOUGHT, **changed}
    budget = prepared(tmp_path, run(1, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z"), bought=bought)
    assert expected(budget)[1] == Decimal("240.00")


def test_another_team_pays_its_own(tmp_path: Path) -> None:
    budget = prepared(
        tmp_path, run(1, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z", namespace="cv"),
        run(2, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z"), team="cv",
    )  # fmt: skip
    assert expected(budget) == (Decimal("240.00"), Decimal("240.00"))


def test_a_namespace_that_passes_to_another_team_costs_each_its_own_time(tmp_path: Path) -> None:
    """80 of 100 hours were used. Until 13:00 nlp adds 24 more: 20 bought, 4 at 10; from then on cv adds 8 at 10."""
    passed = {"cluster": "hq-1", "namespace": "passed"}
    owners = [{**passed, "team": "nlp", "valid_from": "2026-01-01", "valid_until": "2026-10-20T13:00:00Z"},
              {**passed, "team": "cv", "valid_from": "2026-10-20T13:00:00Z"}]  # fmt: skip
    budgets = [{"team": team, "amount": "5000.00", "valid_from": "2026-10-01"} for team in ("nlp", "cv")]
    apply(tmp_path, budgets=budgets, commitments=[BOUGHT], ownership=[*SET_UP["ownership"], *owners])
    job = run(1, "2026-10-20T00:00:00Z", "2026-10-20T10:00:00Z", "2026-10-20T14:00:00Z", namespace="passed")
    ingest_allocations(job, now=NOW)
    assert expected(Budget.objects.get(team__code="nlp")) == (Decimal("800.00"), Decimal("40.00"))
    assert expected(Budget.objects.get(team__code="cv")) == (Decimal("0.00"), Decimal("80.00"))


def test_each_month_of_a_quarter_has_its_own_hours(tmp_path: Path) -> None:
    """12 h x 8 = 96 of October's 100 were used. Until November, at 16:00 UTC, 32 more: 4 bought, 28 at 10; in November 12 h
    x 8 = 96 of its 100: nothing beyond what is contracted.
    """
    seen = datetime(2026, 10, 31, 12, tzinfo=UTC)
    job = run(1, "2026-10-31T00:00:00Z", "2026-10-31T12:00:00Z", "2026-11-01T04:00:00Z")
    budget = prepared(tmp_path, job, now=seen, period="quarter")
    assert expected(budget, seen) == (Decimal("800.00"), Decimal("280.00"))


def test_what_was_encumbered_is_what_the_job_then_costs(tmp_path: Path) -> None:
    """A second namespace, an hour that ends on no whole second, and half a device: the close bills the sum to the cent."""
    jobs = [
        run(1, "2026-10-20T00:00:00Z", "2026-10-20T09:59:59Z", "2026-10-20T17:13:11Z"),
        run(2, "2026-10-20T08:00:00Z", "2026-10-20T10:00:00Z", "2026-10-20T13:20:00Z", namespace="nlp-eval", quantity=2,
            device_fraction="0.5"),
    ]  # fmt: skip
    budget = prepared(tmp_path, *jobs)
    spent, ahead = expected(budget)
    ended = [{**job, "observed_until": end, "ended_at": end, "end_reason": "completed"}
             for job, end in zip(jobs, ("2026-10-20T17:13:11Z", "2026-10-20T13:20:00Z"), strict=True)]  # fmt: skip
    ingest_allocations(*ended, now=NOW + timedelta(hours=12))
    # 8 x 17:13:11 = 137.757778 and 5:20 = 5.333333 hours: 43.091111 beyond 100
    assert expected(budget, NOW + timedelta(hours=12)) == (spent + ahead, Decimal("0.00"))
    assert (spent, ahead) == (Decimal("800.00"), Decimal("430.91"))
    period_close(month="2026-10", actor="ops", now=datetime(2026, 11, 2, tzinfo=UTC))
    assert expected(budget, datetime(2026, 10, 31, tzinfo=UTC))[0] == Decimal("1230.91")


def test_what_comes_late_of_a_closed_month_is_at_list_price(tmp_path: Path) -> None:
    """The close has billed what stayed unused: until somebody reports the job's end, its hours of October are not known."""
    closed = datetime(2026, 11, 2, tzinfo=UTC)
    ended = {"ended_at": "2026-10-31T12:00:00Z", "observed_until": "2026-10-31T12:00:00Z"}
    budget = prepared(tmp_path, allocation_record(1, started_at="2026-10-31T00:00:00Z", **ended), period="quarter")
    period_close(month="2026-10", actor="ops", now=closed)
    assert expected(budget, closed)[0] == Decimal("1600.00")  # 96 used and 4 unused of October, 100 of November, at 8.00
    late = run(2, "2026-10-31T12:00:00Z", "2026-10-31T14:00:00Z", "2026-10-31T16:00:00Z")
    ingest_allocations(late, now=closed)
    assert expected(budget, closed)[1] == Decimal("160.00")


@pytest.mark.parametrize("until", ["99991231T235959-0800", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59+08:00"])
def test_a_job_that_plans_never_to_end_goes_on_to_the_end_of_the_period(tmp_path: Path, until: str) -> None:
    """10 hours were used; 270 are left from 10:00 on 20 October to the end of the month in Shanghai, at 8 x 10.00."""
    job = run(1, "2026-10-20T00:00:00Z", "2026-10-20T10:00:00Z", until)
    budget = prepared(tmp_path, job, bought=None)
    assert expected(budget) == (Decimal("800.00"), Decimal("21600.00"))


def test_a_planned_end_before_all_time_is_over(tmp_path: Path) -> None:
    job = run(1, "2026-10-20T00:00:00Z", "2026-10-20T10:00:00Z", "0001-01-01T00:00:00+08:00")
    assert expected(prepared(tmp_path, job, bought=None)) == (Decimal("800.00"), Decimal("0.00"))
