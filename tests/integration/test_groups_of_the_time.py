"""A budget of a group sums the teams that were below it, split at the instant at which a team moves.

nlp is below research until 11 October 2026, 00:00 in Shanghai, and below products from then on; both are below company. It
holds 8 H800 at 10.0000 from two hours before to four hours after the move: 160.00 and 320.00.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.budgets.models import Budget
from billing.budgets.selectors import team_tree
from billing.budgets.services import BudgetWish, budget_put, days_store, standings_refresh
from billing.closing.report import build_report
from billing.invoices.selectors import period_of
from billing.tenancy.models import Team
from billing.tenancy.services import cost_centers_refresh
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, money, person, signed_in, token_record
from tests.factories.corrections import bill
from tests.factories.cost_centers import used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
PARENTS = [{"value": "research", "valid_from": "2026-01-01"}, {"value": "products", "valid_from": "2026-10-11"}]
DURING = datetime(2026, 10, 20, 4, tzinfo=UTC)
AFTER = datetime(2026, 11, 4, 12, tzinfo=UTC)
GROUPS = ("company", "products", "research")


def group(tmp_path: Path, parent: Any = PARENTS) -> None:
    first, *others = SET_UP["teams"]
    above = [{"code": code, "group": "true", "parent": "company"} for code in ("research", "products")]
    apply(tmp_path, teams=[{**first, "parent": parent}, *others, {"code": "company", "group": "true"}, *above])


def budgets(period: str = "month") -> None:
    for code in (*GROUPS, "nlp"):
        wish = BudgetWish(period=period, amount=money("1000.00"))
        budget_put(team=Team.objects.get(code=code), wish=wish, actor="tests", approved=True)


def spent(now: datetime, label: str = "2026-10") -> dict[str, str]:
    standings_refresh(now=now, past=True)
    found = Budget.objects.filter(standings__period=label).order_by("team__code")
    return dict(found.values_list("team__code", "standings__spent")) and {
        budget.team.code: str(budget.standings.get(period=label).spent) for budget in found
    }


def test_a_month_is_split_at_the_instant_of_the_move(tmp_path: Path) -> None:
    group(tmp_path)
    budgets()
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    expected = {"company": "480.00", "nlp": "480.00", "products": "320.00", "research": "160.00"}
    assert spent(DURING) == expected
    bill()
    assert spent(AFTER) == expected


def test_a_move_within_an_hour_splits_it_by_time_and_the_cents_by_largest_remainder(tmp_path: Path) -> None:
    """1 device from 09:30 to 10:30 at 10.0000, moved at 09:50: 3.333... and 6.666...; the hour counts as a whole."""
    group(tmp_path, [{"value": "research"}, {"value": "products", "valid_from": "2026-10-12T09:20:00Z"}])
    budgets()
    ingest_allocations(used(1, "2026-10-12T09:00:00Z", "2026-10-12T10:00:00Z", quantity=1))
    assert spent(DURING) == {"company": "10.00", "nlp": "10.00", "products": "6.67", "research": "3.33"}


def test_tokens_and_a_budget_of_a_part_are_split_too(tmp_path: Path) -> None:
    group(tmp_path)
    for code in ("research", "products"):
        wish = BudgetWish(period="month", amount=money("1000.00"), model="llama-*")
        budget_put(team=Team.objects.get(code=code), wish=wish, actor="tests", approved=True)
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    counts = {"input_tokens": 10**6, "cache_read_input_tokens": 0}
    ingest_tokens(
        token_record(1, time="2026-10-10T12:00:00Z", **counts),
        *(token_record(number, time="2026-10-12T12:00:00Z", **counts) for number in (2, 3, 4)),
    )
    assert spent(DURING) == {"products": "6.00", "research": "2.00"}


def test_a_quarter_sums_each_month_as_it_was(tmp_path: Path) -> None:
    group(tmp_path)
    budgets("quarter")
    ingest_allocations(
        used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"), used(2, "2026-11-02T10:00:00Z", "2026-11-02T11:00:00Z")
    )
    bill()
    expected = {"company": "560.00", "nlp": "560.00", "products": "400.00", "research": "160.00"}
    assert spent(datetime(2026, 11, 10, tzinfo=UTC), "2026-Q4") == expected


def test_late_usage_counts_for_the_group_of_the_time_of_use(tmp_path: Path) -> None:
    """nlp moves on 1 November; an hour of October that comes after its close is billed in November, for research."""
    group(tmp_path, [{"value": "research"}, {"value": "products", "valid_from": "2026-11-01"}])
    budgets()
    ingest_allocations(used(1, "2026-10-09T10:00:00Z", "2026-10-09T11:00:00Z"))
    bill()
    ingest_allocations(
        used(2, "2026-10-20T10:00:00Z", "2026-10-20T11:00:00Z"), used(3, "2026-11-09T10:00:00Z", "2026-11-09T13:00:00Z")
    )
    now = datetime(2026, 11, 20, tzinfo=UTC)
    assert spent(now, "2026-11") == {"company": "320.00", "nlp": "320.00", "products": "240.00", "research": "80.00"}


def test_checks_and_pages_use_the_group_of_now_before_the_stored_one_follows(tmp_path: Path) -> None:
    group(tmp_path)
    cost_centers_refresh(now=datetime(2026, 10, 1, tzinfo=UTC))
    assert Team.objects.get(code="nlp").parent == Team.objects.get(code="research")
    tree = team_tree(datetime(2026, 10, 10, 16, tzinfo=UTC))
    assert (tree["research"], tree["products"]) == ({"research"}, {"products", "nlp"})
    assert tree["company"] == {"company", "research", "products", "nlp"}


def test_the_days_of_a_budget_are_those_of_its_teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved on 11 October at 01:00 in Shanghai: one hour of that day is still research's."""
    group(tmp_path, [{"value": "research"}, {"value": "products", "valid_from": "2026-10-11T01:00:00+08:00"}])
    budgets()
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    days_store(now=DURING)
    standings_refresh(now=DURING)
    monkeypatch.setattr(timezone, "now", lambda: DURING)
    person("fin", "finance")
    found = {}
    for code in ("research", "products"):
        page = signed_in("fin").get(f"/budgets/{Budget.objects.get(team__code=code).pk}/")
        found[code] = {row.day.day: str(row.amount) for row in page.context["days"] if row.amount}
    assert found == {"research": {10: "160.000000", 11: "80.000000"}, "products": {11: "240.000000"}}


def test_the_report_of_a_month_names_no_budget_of_a_group_that_had_the_team_then(tmp_path: Path) -> None:
    group(tmp_path)
    budgets()
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T15:00:00Z"))
    cost_centers_refresh(now=AFTER)
    report = build_report(period_of("2026-10"), now=AFTER)
    assert not [item for item in report.exceptions if "research" in str(item.subject)]
