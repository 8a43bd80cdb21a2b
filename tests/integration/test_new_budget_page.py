"""Whoever holds budgets for the whole installation makes one on its page; what is refused is beside its field."""

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.services import standings_refresh
from billing.tenancy.models import AuditEntry
from tests.factories import apply, money, person

pytestmark = pytest.mark.django_db
PAGE = "/budgets/new/"
NOW = datetime(2026, 11, 10, tzinfo=UTC)
FORM: dict[str, Any] = {
    "team": "nlp", "name": "NLP serving", "period": "month", "amount": "100,000.50", "thresholds": "50, 80，100%",
    "forecast_thresholds": "100", "commitment_thresholds": "", "plan_month": ["2026-11", "2026-12"], "plan_amount": ["", ""],
}  # fmt: skip
PLAN = {"period": "plan", "amount": "", "plan_month": ["2026-11", "2026-12", "2027-01"], "plan_amount": ["300.00", "", "50"]}


@pytest.fixture(scope="module")
def ann(for_all_tests: Path) -> User:
    apply(for_all_tests, teams=[{"code": "research"}, {"code": "nlp", "parent": "research"}, {"code": "cv"}])
    return person("ann", "finance")


@pytest.fixture
def finance(ann: User, client: Client) -> Client:
    client.force_login(ann)
    return client


def made(client: Client, **changed: Any) -> Budget:
    """The budget that a form makes, to whose page it leads."""
    answer = client.post(PAGE, {**FORM, **changed})
    assert answer.status_code == 302, beside(answer.content.decode())
    budget = Budget.objects.get()
    assert answer["Location"] == f"/budgets/{budget.pk}/"
    assert client.get(answer["Location"]).status_code == 200
    return budget


def beside(page: str) -> list[str]:
    """What is beside fields."""
    return [html.unescape(text) for text in re.findall(r'class="wrong"[^>]*>(.*?)</small>', page, re.DOTALL)]


def shown(page: str, name: str) -> list[str]:
    """What is in the inputs of that name."""
    return [html.unescape(text) for text in re.findall(rf'name="{name}"(?: value="([^"]*)")?', page)]


def test_a_budget_per_month_with_filters_and_its_audit_entry(finance: Client) -> None:
    budget = made(finance, namespace="nlp-*", accelerator="NVIDIA-H800", owner="Ann Lee", valid_from="2026-11-01",
                  valid_until="2027-01-01")  # fmt: skip
    assert (budget.team.code, budget.period, budget.amount) == ("nlp", "month", money("100000.50"))
    assert (budget.namespace, budget.accelerator, budget.model, budget.cluster, budget.consumer) == (
        "nlp-*", "NVIDIA-H800", "", "", "",
    )  # fmt: skip
    assert (budget.thresholds, budget.forecast_thresholds, budget.commitment_thresholds) == ([50, 80, 100], [100], [])
    assert (budget.name, budget.owner) == ("NLP serving", "Ann Lee")
    assert budget.valid_from == datetime(2026, 10, 31, 16, tzinfo=UTC), "local midnight in Shanghai"
    assert budget.valid_until == datetime(2026, 12, 31, 16, tzinfo=UTC)
    entry = AuditEntry.objects.get(action="budget_put")
    assert (entry.actor, entry.subject, entry.detail["before"]) == ("ann", "NLP serving", None)
    assert entry.detail["after"]["amount"] == "100000.50"


def test_a_budget_per_quarter_of_a_group_counts_like_a_declared_one(finance: Client) -> None:
    budget = made(finance, team="research", period="quarter", amount="7777", model="llama-*")
    assert (budget.team.code, budget.period, budget.amount, budget.model) == (
        "research",
        "quarter",
        money("7777"),
        "llama-*",
    )
    standings_refresh(now=NOW)
    standing = BudgetStatus.objects.get(period="2026-Q4")
    assert (standing.amount, standing.spent) == (money("7777.00"), money("0.00"))


def test_a_plan_has_the_months_that_got_an_amount(finance: Client) -> None:
    budget = made(finance, **PLAN)
    assert budget.amount == money("350.00")
    assert dict(budget.plan.values_list("month", "amount")) == {"2026-11": money("300.00"), "2027-01": money("50.00")}
    standings_refresh(now=NOW)
    assert dict(BudgetStatus.objects.values_list("period", "amount")) == {"2026-11": money("300.00")}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"team": ""}, "Team or group: is missing"),
        ({"team": "nobody"}, "Team or group 'nobody': there is no such team"),
        ({"name": "x" * 201}, "must be printable text of up to 200 characters"),
        ({"namespace": "n" * 129}, "must be printable text of up to 128 characters"),
        ({"consumer": "a\x07b"}, "Consumer 'a\\x07b': must be printable text of up to 128 characters"),
        ({"accelerator": "NVIDIA-H800", "model": "llama-*"},
         "Model 'llama-*': is given beside an accelerator, and no usage has both: give one of them"),
        ({"period": "week"}, "Period 'week': must be month, quarter or plan"),
        *(({"amount": amount}, f"Amount '{amount}': must be an amount from 0.01 to 1,000,000,000,000 with at most 2 de")
          for amount in ("0", "0.00", "-5", "1.005", "1,5", "NaN", "1e3", "ten", "1000000000000.01")),
        ({"amount": ""}, "Amount: must be an amount from 0.01"),
        ({"valid_from": "2026-13-01"}, "From '2026-13-01': must be a day from 2000 to 2199 such as 2026-11-30"),
        ({"valid_until": "1999-12-31"}, "End date (exclusive) '1999-12-31': must be a day from 2000 to 2199"),
        ({"valid_from": "2026-11-01", "valid_until": "2026-11-01"},
         "End date (exclusive) '2026-11-01': must come after 2026-11-01, on which the budget begins"),
        ({"thresholds": "50, half"}, "Percent of spending '50, half': must be whole percents from 1 to 1000"),
        ({"forecast_thresholds": "0"}, "Percent of the forecast '0': must be whole percents from 1 to 1000"),
        ({"commitment_thresholds": "1001"}, "Percent of spending with running jobs '1001': must be whole percents"),
        ({"plan_amount": ["5.00", ""]}, "2026-11 '5.00': must be left out: only a plan has amounts by month"),
        ({**PLAN, "amount": "350.00"}, "Amount '350.00': must be left out: the amount of a plan is the sum of its months"),
        ({**PLAN, "plan_amount": ["", "", ""]}, "Amounts by month: at least one month needs its amount"),
        ({**PLAN, "plan_amount": ["abc", "1", ""]}, "2026-11 'abc': must be an amount from 0.01"),
        ({**PLAN, "plan_month": ["2026-13", "2026-12", "2027-01"]}, "Month '2026-13': must be a month such as 2026-10"),
        ({**PLAN, "plan_month": ["2027-01", "2026-12", "2027-01"]}, "Month '2027-01': is there twice"),
    ],
)  # fmt: skip
def test_a_refusal_stands_beside_its_field_and_nothing_typed_is_lost(
    finance: Client, changed: dict[str, Any], said: str
) -> None:
    sent = {**FORM, **changed}
    answer = finance.post(PAGE, sent)
    assert answer.status_code == 400
    page = answer.content.decode()
    found = beside(page)
    assert len(found) == 1, found
    assert said in found[0]
    assert found[0] in html.unescape(page.partition('id="refusals"')[2].partition("</div>")[0])
    assert 'aria-invalid="true"' in page or "Amounts by month:" in said
    for name in ("amount", "valid_from", "thresholds"):
        assert shown(page, name) == [sent.get(name, "")], name
    for name in ("plan_month", "plan_amount"):
        assert shown(page, name) == sent[name]
    assert not Budget.objects.exists()
    assert not AuditEntry.objects.filter(action="budget_put").exists()


def test_a_budget_that_is_there_is_never_written_over(finance: Client) -> None:
    budget = made(finance)
    for changed in ({"amount": "5.00"}, {"amount": "5.00", "valid_from": "2026-12-01"}):
        answer = finance.post(PAGE, {**FORM, **changed})
        assert answer.status_code == 400
        refusal = "budget of nlp: another budget of the same scope and period is in force for part of that time"
        assert refusal in answer.content.decode()
        assert 'value="5.00"' in answer.content.decode()
    assert Budget.objects.get() == budget
    assert Budget.objects.get().amount == money("100000.50")
    assert AuditEntry.objects.filter(action="budget_put").count() == 1


def test_refusals_are_reported_in_chinese(finance: Client) -> None:
    made(finance)
    chinese = {"accept-language": "zh-hans"}
    page = finance.post(PAGE, FORM, headers=chinese).content.decode()
    assert "nlp 的预算：该时段内已有范围与账期相同的预算生效" in page
    page = finance.post(PAGE, {**FORM, "amount": "ten"}, headers=chinese).content.decode()
    assert beside(page) == ["金额 'ten'：须为 0.01 至 1,000,000,000,000 的金额，最多两位小数，例如 100,000.00"]


@pytest.mark.parametrize(
    ("role", "team", "page", "made"),
    [("finance", None, 200, 302), ("admin", None, 200, 302), ("lead", "nlp", 200, 302), ("lead", "research", 200, 302),
     ("lead", "cv", 200, 400), ("viewer", None, 403, 403), ("approver", None, 403, 403), ("auditor", None, 403, 403)],
)  # fmt: skip
def test_who_sets_budgets_of_a_team_is_led_to_the_form_and_makes_one_of_that_team(
    finance: Client, client: Client, role: str, team: str | None, page: int, made: int
) -> None:
    client.force_login(person(f"{role}-x", role, team=team))
    assert (f'href="{PAGE}"' in client.get("/budgets/").content.decode()) is (page == 200)
    assert (client.get(PAGE).status_code, client.post(PAGE, FORM).status_code) == (page, made)
    assert Budget.objects.exists() is (made == 302)


def test_the_form_begins_with_the_usual_thresholds_and_the_months_of_a_year(finance: Client) -> None:
    page = finance.get(PAGE).content.decode()
    assert 'name="thresholds" value="50, 80, 100"' in page
    assert 'name="forecast_thresholds" value="100"' in page
    months = shown(page, "plan_month")
    assert len(months) == len(set(months)) == 12
    assert months == sorted(months)
    assert '<option value="research">' in page
