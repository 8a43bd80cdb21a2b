"""Where a period of a team that has bought hours will end, by hand: list price 10.00, bought hours 8.00, 10 hours a day.

40 hours are used in the four days before the fifth of October; 270 are to come in its other 27 days.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.budgets.expected import expected_of
from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.scope import Scope
from billing.budgets.services import days_store, forecasts_update, standings_refresh
from billing.rating.selectors import reference_data_known
from metering.intervals import billing_month
from tests.factories import (
    SET_UP,
    allocation_record,
    apply,
    ingest_allocations,
    ingest_tokens,
    known_accelerators,
    token_record,
)

pytestmark = pytest.mark.django_db
ZONE = "Asia/Shanghai"
NOW = datetime(2026, 10, 4, 16, tzinfo=UTC)
"""The fifth of October begins."""


def bought(hours: str, **changed: str) -> dict[str, str]:
    return {
        "name": "nlp-h800", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": hours,
        "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01", **changed,
    }  # fmt: skip


def used(days: range, first: int = 0, **changed: Any) -> None:
    """Ten hours of one device on each of these days of October; `first`: numbers of the allocations begin behind it."""
    for day in days:
        start = datetime(2026, 10, day, tzinfo=UTC) - timedelta(hours=6)
        end = start + timedelta(hours=10)
        reported = {"started_at": start.isoformat(), "ended_at": end.isoformat(), "observed_until": end.isoformat()}
        ingest_allocations(allocation_record(first + day, quantity=1, **reported, **changed), now=end)


def prepared(directory: Path, *commitments: dict[str, str], prices: Any = (), **scope: str) -> Budget:
    budget = {"team": "nlp", "amount": "5000.00", "valid_from": "2026-10-01", **scope}
    versions = [*SET_UP["price_versions"], *prices]
    known_accelerators("NVIDIA-A800", "NVIDIA-B200")
    apply(directory, budgets=[budget], commitments=list(commitments), price_versions=versions)
    used(range(1, 5))
    return Budget.objects.get()


def standing(budget: Budget, now: datetime = NOW) -> BudgetStatus:
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    found: BudgetStatus = budget.standings.get(start__lte=now, end__gt=now)
    return found


def test_bought_hours_come_first_and_the_rest_is_at_list_price(tmp_path: Path) -> None:
    """100 x 8 are spent; of 270 hours to come 60 are bought: 800 + 210 x 10."""
    found = standing(prepared(tmp_path, bought("100")))
    assert (found.spent, found.forecast_p50, found.forecast_method) == (Decimal("800.00"), Decimal("2900.00"), "line")


def test_what_was_forecast_is_what_the_month_comes_to(tmp_path: Path) -> None:
    budget = prepared(tmp_path, bought("100"))
    forecast = standing(budget).forecast_p50
    used(range(5, 32))
    assert standing(budget, datetime(2026, 10, 31, 15, tzinfo=UTC)).spent == forecast == Decimal("2900.00")


def test_enough_is_bought_for_all_that_is_to_come(tmp_path: Path) -> None:
    assert standing(prepared(tmp_path, bought("1000"))).forecast_p50 == Decimal("8000.00")


@pytest.mark.parametrize(
    "changed", [{"accelerator": "NVIDIA-A800"}, {"valid_from": "2026-11-01"}, {"team": "cv"}]
)
def test_hours_of_something_else_change_nothing_to_come(tmp_path: Path, changed: dict[str, str]) -> None:
    """310 x 10; whatever is bought of another device by the team is spent beside it."""
    found = standing(prepared(tmp_path, bought("100", **changed)))
    beside = Decimal("800.00") if "accelerator" in changed else Decimal(0)
    if beside:
        assert found.spent == Decimal("400.00") + beside
    assert found.forecast_p50 == Decimal("3100.00") + beside


def test_a_budget_of_a_namespace_pays_for_bought_hours_as_they_are_used(tmp_path: Path) -> None:
    """40 x 8 are spent; of 270 hours to come 60 cost 8 and 210 cost 10."""
    found = standing(prepared(tmp_path, bought("100"), namespace="nlp-*"))
    assert (found.spent, found.forecast_p50) == (Decimal("320.00"), Decimal("2900.00"))


def test_namespaces_share_what_is_left_by_what_is_expected_of_each(tmp_path: Path) -> None:
    """nlp-eval uses as much as the rest: of 540 hours to come 20 are bought, 10 of them its own.

    Its 40 hours of 80 are bought: 40 x 8 are spent; 10 x 8 + 260 x 10 are to come.
    """
    budget = prepared(tmp_path, bought("100"), namespace="nlp-eval")
    used(range(1, 5), first=100, namespace="nlp-eval")
    found = standing(budget)
    assert (found.spent, found.forecast_p50) == (Decimal("320.00"), Decimal("3000.00"))


def test_a_later_price_is_paid_for_what_lies_beyond_the_bought_hours(tmp_path: Path) -> None:
    """To the 19th 150 hours, 60 of them bought and 90 x 10; from the 20th on 120 x 12."""
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12"}]
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": "2026-10-20T00:00:00+08:00", "gpu": gpu}
    assert standing(prepared(tmp_path, bought("100"), prices=[later])).forecast_p50 == Decimal("3140.00")


def test_a_later_price_of_tokens_takes_nothing_off_bought_hours(tmp_path: Path) -> None:
    """1,000 x 8 are spent, used or not. 100.00 of tokens a day for 19 days, and from the 20th on 200.00 for 12 days."""
    tokens = [{"model": "llama-3-8b", "input": "4", "output": "16"}]
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": "2026-10-20T00:00:00+08:00", "tokens": tokens}
    budget = prepared(tmp_path, bought("1000"), prices=[later])
    ingest_tokens(
        *(token_record(day, time=f"2026-10-{day:02}T04:00:00Z", input_tokens=50_000_000, cache_read_input_tokens=0,
                       output_tokens=0, reasoning_output_tokens=0) for day in range(1, 5)), now=NOW,
    )  # fmt: skip
    found = standing(budget)
    assert (found.spent, found.forecast_p50) == (Decimal("8400.00"), Decimal("12300.00"))


def test_each_month_of_a_quarter_has_its_own_hours(tmp_path: Path) -> None:
    """October 2,900, November 100 x 8 + 200 x 10, December 100 x 8 + 210 x 10."""
    assert standing(prepared(tmp_path, bought("100"), period="quarter")).forecast_p50 == Decimal("8600.00")


@pytest.mark.parametrize("price", [None, "0"], ids=["in no list yet", "at nothing in the list"])
def test_months_to_come_are_paid_also_for_what_has_no_list_price(tmp_path: Path, price: str | None) -> None:
    """92 days x 100.00 of what is used, and 100 hours x 8 in November and in December of devices that come then."""
    free = [{"accelerator": "NVIDIA-B200", "price_per_gpu_hour": price}] if price else []
    gpu = [*SET_UP["price_versions"][0]["gpu"], *free]
    later = {**SET_UP["price_versions"][0], "name": "later", "valid_from": "2026-10-02T00:00:00+08:00", "gpu": gpu}
    ahead = bought("100", accelerator="NVIDIA-B200", valid_from="2026-11-01")
    assert standing(prepared(tmp_path, ahead, prices=[later], period="quarter")).forecast_p50 == Decimal("10800.00")


def test_hours_that_are_bought_from_a_later_day_on_pay_from_that_day(tmp_path: Path) -> None:
    """From the 17th to the end: 15 of 31 days, 48.387097 hours. 160 x 10 before it, 150 - 48.387097 beyond them.

    1600 + 387.10 + 1016.13
    """
    assert standing(prepared(tmp_path, bought("100", valid_from="2026-10-17"))).forecast_p50 == Decimal("3003.23")


def test_two_commitments_pay_for_different_hours(tmp_path: Path) -> None:
    """200 x 8 and 200 x 9 are spent, of which 360 hours are left: they pay for all 270 to come."""
    more = bought("200", name="more", price_per_gpu_hour="9", valid_from="2026-09-01", valid_until="2026-11-01")
    assert standing(prepared(tmp_path, bought("200"), more)).forecast_p50 == Decimal("3400.00")


def test_the_month_on_the_overview_ends_where_its_budget_does(tmp_path: Path) -> None:
    found = standing(prepared(tmp_path, bought("100")))
    scope, window = Scope(frozenset({"nlp"})), billing_month("2026-10", ZONE)
    expected = expected_of(scope, window, found.spent, NOW, ZONE, reference_data_known(1), silent=False)
    assert expected is not None
    assert (expected.p50, expected.method) == (Decimal("2900.00"), "line")
