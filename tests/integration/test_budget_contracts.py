"""A budget's threshold for what is committed counts what the team has to pay in the months to come, used or not."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from billing.budgets.models import Alert, Budget, BudgetStatus
from billing.budgets.services import budgets_evaluate
from tests.factories import apply, person, signed_in

pytestmark = pytest.mark.django_db
OCTOBER = datetime(2026, 10, 20, tzinfo=UTC)
HOURS = {
    "name": "nlp-h800", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "100",
    "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01",
}  # fmt: skip


def evaluated(directory: Path, amount: str, *, commitment: dict[str, Any] | None = None, **scope: str) -> dict[int, Decimal]:
    """The percents that were reached on the basis of what is committed, with what was."""
    budget = {
        "team": "nlp", "period": "quarter", "amount": amount, "valid_from": "2026-10-01", "thresholds": [],
        "commitment_thresholds": [80, 100], **scope,
    }  # fmt: skip
    apply(directory, budgets=[budget], commitments=[commitment or HOURS])
    budgets_evaluate(now=OCTOBER)
    found = Alert.objects.filter(basis="commitment").values_list("percent", "value")
    return {percent: value for percent, value in found if percent is not None}


def test_the_running_month_counts_in_full_and_so_do_those_to_come(tmp_path: Path) -> None:
    """100 hours at 8.00 in each of three months: 800 are on the lines of October, 1,600 to come."""
    assert evaluated(tmp_path, "2400.00") == {80: Decimal("2400.00"), 100: Decimal("2400.00")}
    assert BudgetStatus.objects.get().spent == Decimal("800.00")


def test_one_cent_more_of_budget_is_not_committed_in_full(tmp_path: Path) -> None:
    assert evaluated(tmp_path, "2400.01") == {80: Decimal("2400.00")}


def test_a_contract_that_ends_counts_to_its_end(tmp_path: Path) -> None:
    """December to the 16th: 15 of 31 days, 48.387097 hours at 8.00 are 387.10; with 800 and 800 it is 1,987.10."""
    found = evaluated(tmp_path, "1987.10", commitment={**HOURS, "valid_until": "2026-12-16"})
    assert found == {80: Decimal("1987.10"), 100: Decimal("1987.10")}


@pytest.mark.parametrize(
    ("scope", "reached"),
    [({"accelerator": "NVIDIA-H800"}, [80, 100]), ({"accelerator": "NVIDIA-A800"}, []), ({"namespace": "nlp-*"}, [])],
)
def test_a_scope_counts_the_contracts_that_it_covers(tmp_path: Path, scope: dict[str, str], reached: list[int]) -> None:
    assert sorted(evaluated(tmp_path, "2400.00", **scope)) == reached


def test_the_page_says_what_is_contracted_and_what_that_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated(tmp_path, "3000.00")
    monkeypatch.setattr("billing.portal.views.budgets.timezone", SimpleNamespace(now=lambda: OCTOBER))
    client = signed_in(person("fin", "finance"))
    page = client.get(f"/budgets/{Budget.objects.get().pk}/")
    assert (page.context["contracted"], page.context["available"]) == (Decimal("1600.00"), Decimal("600.00"))
    assert "Contracted for the months to come" in page.content.decode()
