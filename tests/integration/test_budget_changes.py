"""Who changes a budget that is there: what lets more be spent of one that blocks takes two, whichever way it is asked."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from billing.approvals.limits import AuthorityError
from billing.approvals.selectors import waiting
from billing.budgets.models import Budget, BudgetChange
from billing.budgets.services import BudgetError, budget_change, budget_change_approve, budget_put
from billing.budgets.services.budgets import loosens
from billing.budgets.services.changes import wish_of
from billing.budgets.thresholds import Rung
from billing.portal.budget_form import ChangeForm
from billing.tenancy.models import AuditEntry
from tests.factories import apply, money, person, signed_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 4, tzinfo=UTC)
DECEMBER, JANUARY = datetime(2026, 11, 30, 16, tzinfo=UTC), datetime(2026, 12, 31, 16, tzinfo=UTC)
HARD = {"team": "nlp", "amount": "200.00", "valid_until": "2026-12-01T00:00:00+08:00"}
SOFT = {**HARD, "ladder": [{"at": 80, "action": "require_approver"}]}
PLAN = {"team": "nlp", "period": "plan", "amounts": {"2026-10": "100.00", "2026-11": "300.00"}}


@pytest.fixture(scope="module")
def people(for_all_tests: Path) -> None:
    apply(for_all_tests)
    person("tom", "lead", team="nlp")
    person("fin", "finance")
    person("sam", "approver")
    person("adam", "admin")


def declared(tmp_path: Path, **budget: Any) -> Budget:
    apply(tmp_path, budgets=[budget])
    return Budget.objects.select_related("team").get()


@pytest.mark.parametrize(
    ("budget", "changed", "takes_two"),
    [
        (HARD, {"amount": money("200.01")}, True),
        (HARD, {"amount": money("200.00"), "name": "Ours"}, False),
        (HARD, {"amount": money("199.99")}, False),
        (HARD, {"valid_until": NOW}, True),
        (HARD, {"valid_until": JANUARY}, False),
        (HARD, {"valid_until": None}, False),
        (HARD, {"ladder": (Rung(80, "notify"),)}, True),
        (HARD, {"ladder": (Rung(101, "cap"),)}, True),
        (HARD, {"ladder": (Rung(90, "cap"),)}, False),
        (SOFT, {"amount": money("900.00"), "valid_until": NOW}, False),
        (PLAN, {"plan": {"2026-10": money("101.00"), "2026-11": money("100.00")}}, True),
        (PLAN, {"plan": {"2026-10": money("100.00")}}, True),
        (PLAN, {"plan": {"2026-10": money("99.00"), "2026-11": money("300.00")}}, False),
    ],
)  # fmt: skip
def test_only_what_lets_more_be_spent_of_a_budget_that_blocks_takes_two(
    people: None, tmp_path: Path, budget: dict[str, Any], changed: dict[str, Any], takes_two: bool
) -> None:
    known = declared(tmp_path, **budget)
    wish = wish_of(known, **changed)
    assert loosens(known, wish) is takes_two
    _, waits = budget_change(team=known.team, wish=wish, reason="growth", now=NOW, actor="tom")
    assert (waits is not None) is takes_two
    assert (wish_of(Budget.objects.get()) == wish) is not takes_two
    if waits is not None:
        with pytest.raises(BudgetError, match="takes a second person"):
            budget_put(team=known.team, wish=wish, actor="tom")
        budget_change_approve(change_id=waits.pk, now=NOW, actor="fin")
        assert wish_of(Budget.objects.get()) == wish


def test_whoever_asked_does_not_approve_and_the_audit_log_has_both(people: None, tmp_path: Path) -> None:
    known = declared(tmp_path, **HARD)
    wish = wish_of(known, amount=money("300.00"))
    _, waits = budget_change(team=known.team, wish=wish, reason="growth", now=NOW, actor="fin")
    assert waits is not None
    for actor, refused in (("FIN", "somebody else must approve"), ("tom", "right"), ("adam", "right")):
        with pytest.raises(AuthorityError, match=refused):
            budget_change_approve(change_id=waits.pk, now=NOW, actor=actor)
    assert [row.pk for row in waiting(User.objects.get(username="sam"), NOW)] == [waits.pk]
    budget_change_approve(change_id=waits.pk, now=NOW, actor="sam")
    assert Budget.objects.get().amount == money("300.00")
    found = AuditEntry.objects.filter(action__startswith="budget_").order_by("id").values_list("action", "actor")
    assert list(found)[1:] == [("budget_change_ask", "fin"), ("budget_put", "sam"), ("budget_change_approve", "sam")]


def test_a_later_wish_takes_the_place_of_one_that_waits_and_a_budget_that_moved_is_asked_again(
    people: None, tmp_path: Path
) -> None:
    known = declared(tmp_path, **HARD)

    def ask(amount: str, reason: str = "growth") -> Any:
        return budget_change(
            team=known.team, wish=wish_of(known, amount=money(amount)), reason=reason, now=NOW, actor="tom"
        )[1]

    with pytest.raises(BudgetError, match="give a reason"):
        ask("300.00", " ")
    first, second = ask("300.00"), ask("400.00")
    assert ask("400.00").pk == second.pk
    assert BudgetChange.objects.get(pk=first.pk).state == "withdrawn"
    budget_put(team=known.team, wish=wish_of(known, amount=money("150.00")), actor="tom")
    with pytest.raises(BudgetError, match="is another one by now"):
        budget_change_approve(change_id=second.pk, now=NOW, actor="fin")


def test_the_command_applies_what_a_file_declares_at_once(people: None, tmp_path: Path) -> None:
    known = declared(tmp_path, **HARD)
    file = tmp_path / "more.yaml"
    file.write_text(json.dumps({"budgets": [{**HARD, "amount": "500.00"}]}))
    call_command("apply", str(file))
    assert (Budget.objects.get().pk, Budget.objects.get().amount) == (known.pk, money("500.00"))
    assert not BudgetChange.objects.exists()


def post(client: Client, address: str, **fields: str) -> Any:
    return client.post(address, fields)


def test_a_lead_lowers_at_once_and_asks_for_more_on_the_page(people: None, tmp_path: Path) -> None:
    known = declared(tmp_path, **HARD)
    lead, address = signed_in(User.objects.get(username="tom")), f"/budgets/{known.pk}/change/"
    sent = {"name": "Ours", "amount": "150.00", "valid_until": "2026-12-01", "reason": ""}
    looked = post(lead, address, **sent)
    page = looked.content.decode()
    assert (looked.status_code, Budget.objects.get().amount) == (200, money("200.00"))
    for text in ("200.00", "150.00", "It takes effect within a minute.", "amount: &#x27;150.00&#x27;"):
        assert text in page, text
    seen = looked.context["look"]["seen"]
    assert post(lead, address, **{**sent, "amount": "900.00", "reason": "x"}, looked=seen).status_code == 200
    assert Budget.objects.get().amount == money("200.00"), "something else was looked at"
    assert post(lead, address, **sent, looked=seen)["Location"] == f"/budgets/{known.pk}/"
    assert (Budget.objects.get().amount, Budget.objects.get().name) == (money("150.00"), "Ours")
    more = {**sent, "amount": "400.00"}
    refused = post(lead, address, **more)
    assert (refused.status_code, "Reason: is missing" in refused.content.decode()) == (400, True)
    looked = post(lead, address, **{**more, "reason": "release week"})
    assert "This budget blocks" in looked.content.decode()
    post(lead, address, **{**more, "reason": "release week"}, looked=looked.context["look"]["seen"])
    change = BudgetChange.objects.get()
    step = f"/budgets/{known.pk}/changes/{change.pk}"
    own = lead.get(f"/budgets/{known.pk}/").content.decode()
    assert "A change waits for approval" in own
    assert f"{step}/approve/" not in own
    assert post(lead, f"{step}/approve/").status_code == 409
    fin = signed_in(User.objects.get(username="fin"))
    assert f"{step}/approve/" in fin.get(f"/budgets/{known.pk}/").content.decode()
    assert "Budget to be changed" in fin.get("/inbox/").content.decode()
    assert post(fin, f"{step}/approve/").status_code == 302
    assert Budget.objects.get().amount == money("400.00")


@pytest.mark.parametrize(("asked", "shown"), [
    ({"valid_until": datetime(2026, 10, 31, 16, tzinfo=UTC)}, "End date (exclusive) 2026-11-01"),
    ({"amount": money("300.00"), "valid_until": None}, "End date (exclusive) —"),
    ({"amount": money("300.00")}, ""),
])  # fmt: skip
def test_who_approves_sees_the_day_of_the_billing_zone_on_which_it_will_end(
    people: None, tmp_path: Path, asked: dict[str, Any], shown: str
) -> None:
    known = declared(tmp_path, **HARD)
    budget_change(team=known.team, wish=wish_of(known, **asked), reason="growth", now=NOW, actor="tom")
    page = " ".join(signed_in("fin").get(f"/budgets/{known.pk}/").content.decode().split())
    assert "A change waits for approval" in page
    assert shown in page
    assert page.count("End date (exclusive)") == bool(shown)


def test_an_end_within_a_day_stays_where_only_the_name_is_changed(people: None, tmp_path: Path) -> None:
    known = declared(tmp_path, **{**HARD, "valid_until": "2026-12-01T12:00:00+08:00"})
    form = ChangeForm(
        {"name": "Ours", "amount": "200.00", "valid_until": "2026-12-01"}, budget=known, currency="CNY"
    )
    with timezone.override("Asia/Shanghai"):
        assert form.is_valid(), form.errors
    assert form.wish == wish_of(known, name="Ours")


def test_a_plan_is_changed_month_by_month_and_a_lead_takes_a_wish_back(people: None, tmp_path: Path) -> None:
    known = declared(tmp_path, **PLAN)
    lead, address = signed_in(User.objects.get(username="tom")), f"/budgets/{known.pk}/change/"
    sent = {
        "name": "", "valid_until": "", "reason": "growth", "plan_month": ["2026-10", "2026-11"],
        "plan_amount": ["100.00", "350.00"],
    }  # fmt: skip
    looked = lead.post(address, sent)
    assert "450.00" in looked.content.decode()
    lead.post(address, {**sent, "looked": looked.context["look"]["seen"]})
    change = BudgetChange.objects.get()
    assert change.after["plan"] == {"2026-10": "100.00", "2026-11": "350.00"}
    lead.post(f"/budgets/{known.pk}/changes/{change.pk}/end/")
    assert BudgetChange.objects.get().state == "withdrawn"
    assert lead.post(address, {**sent, "plan_amount": ["", ""]}).status_code == 400


def test_every_way_of_the_portal_to_a_set_up_text_asks_too(people: None, tmp_path: Path) -> None:
    declared(tmp_path, **HARD)
    admin = signed_in(User.objects.get(username="adam"))
    text = json.dumps({"budgets": [{**HARD, "amount": "500.00"}]})
    admin.post("/ownership/apply/", {"text": text})
    assert Budget.objects.get().amount == money("200.00")
    assert BudgetChange.objects.get().created_by == "adam"
