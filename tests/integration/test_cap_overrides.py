"""A budget passes its cap only with a reason, an amount, an end and a second person, and only until then."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from billing.approvals.limits import AuthorityError
from billing.approvals.models import Proposal, Step
from billing.approvals.selectors import waiting
from billing.budgets.check import Ask, check
from billing.budgets.models import Budget, CapOverride
from billing.budgets.reference import reference_read
from billing.budgets.reservations import reservations
from billing.budgets.services import (
    BudgetError,
    cap_override_approve,
    cap_override_ask,
    cap_override_end,
    standings_refresh,
)
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, money, person

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 4, tzinfo=UTC)
TOMORROW = NOW + timedelta(days=1)
ASK = Ask("litellm-hq", "nlp-key-1", "llama-3-8b")


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """A budget of 200.00 with the default cap at 100 %, of which 209.62 are spent; tom holds it, fin approves."""
    apply(for_all_tests, budgets=[{"team": "nlp", "amount": "200.00"}])
    person("tom", "lead", team="nlp")
    person("fin", "approver")
    person("sam", "finance")
    ingest_allocations(allocation_record(1))
    standings_refresh(now=NOW)


@pytest.fixture
def spent(october: None, db: None) -> Budget:
    return Budget.objects.get()


def asked(budget: Budget, amount: str = "50.00", actor: str = "tom", **changed: datetime | str) -> CapOverride:
    values = {"until": TOMORROW, "reason": "release week", "now": NOW, **changed}
    return cap_override_ask(budget=budget, amount=money(amount), actor=actor, **values)


def passes(now: datetime) -> tuple[bool, str, list[str]]:
    reference = reference_read(now)
    assert reference is not None
    answer = check(ASK, reference, reservations(), now, reserve=False)
    return answer.allowed, answer.reason, [action.action for action in answer.actions]


def test_a_lead_asks_and_finance_agrees_on_the_page(tmp_path: Path) -> None:
    ownership = [{**row, "valid_from": "2024-01-01"} for row in SET_UP["ownership"]]
    apply(tmp_path, ownership=ownership, budgets=[{"team": "nlp", "amount": "200.00"}])
    people = {name: Client() for name in ("tom", "sam", "kim")}
    for name, role, team in (("tom", "lead", "nlp"), ("sam", "finance", None), ("kim", "lead", "cv")):
        people[name].force_login(person(name, role, team=team))
    address = f"/budgets/{Budget.objects.get().pk}/"
    until = (timezone.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    form = {"amount": "1,000.00", "until": until, "reason": "release week"}
    assert people["kim"].post(f"{address}override/", form).status_code == 404
    assert people["tom"].post(f"{address}override/", {**form, "amount": "lots"}).status_code == 400
    assert people["tom"].post(f"{address}override/", form).status_code == 302
    override = CapOverride.objects.get()
    assert (override.amount, override.asked_by, override.approved_by) == (Decimal("1000.00"), "tom", "")
    step = f"{address}overrides/{override.pk}/"
    assert "approve/" not in people["tom"].get(address).content.decode()
    assert people["tom"].post(f"{step}approve/").status_code == 409
    assert people["kim"].post(f"{step}end/").status_code == 404
    assert f"{step}approve/" in people["sam"].get(address).content.decode()
    assert people["sam"].post(f"{step}approve/").status_code == 302
    assert "approved by sam" in people["tom"].get(address).content.decode()
    assert people["tom"].post(f"{step}end/").status_code == 302
    assert "release week" not in people["tom"].get(address).content.decode()


def test_an_approved_override_lets_requests_pass_until_its_end(spent: Budget) -> None:
    assert passes(NOW) == (False, "budget_used_up", ["cap"])
    override = asked(spent)
    assert passes(NOW)[0] is False, "nothing changes before somebody else agrees"
    cap_override_approve(override_id=override.pk, now=NOW, actor="fin")
    assert passes(NOW) == (True, "over_budget", [])
    assert passes(TOMORROW - timedelta(microseconds=1))[0] is True
    assert passes(TOMORROW)[:2] == (False, "budget_used_up")
    reported = AuditEntry.objects.filter(action__startswith="cap_override").values_list("action", "actor", "detail__reason")
    assert list(reported) == [("cap_override_ask", "tom", "release week"), ("cap_override_approve", "fin", "release week")]


def test_an_override_that_is_too_small_lets_nothing_pass(spent: Budget) -> None:
    """9.62 are above the amount: 9.62 more is still the cap, 9.63 is not."""
    cap_override_approve(override_id=asked(spent, "9.62").pk, now=NOW, actor="fin")
    assert passes(NOW)[0] is False
    cap_override_approve(override_id=asked(spent, "0.01").pk, now=NOW, actor="fin")
    assert passes(NOW)[0] is True


def test_it_ends_before_its_time_when_somebody_says_so(spent: Budget) -> None:
    override = cap_override_approve(override_id=asked(spent).pk, now=NOW, actor="sam")
    cap_override_end(override=override, now=NOW + timedelta(hours=1), actor="tom")
    assert (passes(NOW)[0], passes(NOW + timedelta(hours=1))[0]) == (True, False)


def test_nobody_approves_alone_or_without_the_right_or_twice(spent: Budget) -> None:
    override = asked(spent, actor="sam")
    for actor, said in (("sam", "sam asked for"), ("tom", "tom may not"), ("nobody", "nobody may not")):
        with pytest.raises(AuthorityError, match=said):
            cap_override_approve(override_id=override.pk, now=NOW, actor=actor)
    with pytest.raises(BudgetError, match="its time is over"):
        cap_override_approve(override_id=override.pk, now=TOMORROW, actor="fin")
    cap_override_approve(override_id=override.pk, now=NOW, actor="fin")
    with pytest.raises(BudgetError, match="approved already"):
        cap_override_approve(override_id=override.pk, now=NOW, actor="fin")
    step = {"proposal_id": asked(spent, actor="sam").proposal_id, "at": NOW, "action": "approved", "revision": 1}
    with pytest.raises(IntegrityError, match="no maker decides on a proposal"), transaction.atomic():
        Step.objects.create(actor=" Sam", payload=Proposal.objects.get(pk=step["proposal_id"]).payload, **step)


def test_what_nobody_approved_is_taken_back_and_waits_for_nobody_after_its_end(spent: Budget) -> None:
    override = asked(spent)
    fin = User.objects.get(username="fin")
    assert [row.subject for row in waiting(fin, NOW)] == [str(spent)]
    assert waiting(fin, TOMORROW) == []
    cap_override_end(override=override, now=NOW, actor="tom")
    assert (Proposal.objects.get().state, waiting(fin, NOW)) == ("withdrawn", [])
    with pytest.raises(BudgetError, match="its time is over"):
        cap_override_approve(override_id=override.pk, now=NOW, actor="fin")
    assert AuditEntry.objects.filter(action="cap_override_end").count() == 1


@pytest.mark.parametrize(
    ("amount", "changed", "said"),
    [
        ("0.00", {}, "amount 0.00: must be above 0"),
        ("1.001", {}, "amount 1.001"),
        ("1.00", {"until": NOW}, "must lie in the future"),
        ("1.00", {"reason": " "}, "a reason is missing"),
    ],
)
def test_what_is_missing_is_named(spent: Budget, amount: str, changed: dict, said: str) -> None:
    with pytest.raises(BudgetError, match=said):
        asked(spent, amount, **changed)
    assert not CapOverride.objects.exists()
