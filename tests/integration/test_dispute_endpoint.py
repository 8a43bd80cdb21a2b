"""A program of a team opens disputes over the API: for its own team only, and by the rules of everybody else."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.corrections.models import Dispute
from billing.invoices.models import Invoice
from billing.invoices.selectors import state_of
from billing.tenancy.models import AuditEntry
from tests.factories import money
from tests.factories.api import program
from tests.factories.corrections import OCTOBER_OVER, billed_october

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """nlp owes 1000.00 for October in line 1."""
    billed_october(for_all_tests)


@pytest.fixture(autouse=True)
def now_is_five_days_later(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.api.credit_notes.timezone.now", lambda: OCTOBER_OVER + timedelta(days=5))


def post(team: str | None, *scopes: str, **changed: Any) -> Any:
    body = {"document": str(Invoice.objects.get().number), "lines": [1], "reason_code": "quantity",
            "statement": "ran half as long", "evidence": "INC-9", "amount": "500.00", **changed}  # fmt: skip
    return program(*scopes, team=team or "").post("/api/v1/disputes", body, content_type="application/json")


def test_a_token_of_the_team_opens_a_dispute() -> None:
    answer = post("nlp", "disputes:write")
    assert answer.status_code == 201
    reported = {name: answer.json()[name] for name in ("status", "team", "lines", "amount", "reason_code", "triage_due")}
    assert reported == {
        "status": "open", "team": "nlp", "lines": [1], "amount": "500.00", "reason_code": "quantity",
        "triage_due": "2026-11-11T00:00:00+08:00",
    }  # fmt: skip
    dispute = Dispute.objects.get()
    assert (dispute.amount, dispute.opened_by.startswith("token:")) == (money("500.00"), True)
    assert state_of(Invoice.objects.get()) == "disputed"
    assert AuditEntry.objects.get(action="dispute_open").actor == dispute.opened_by
    assert post("nlp", "disputes:write").status_code == 409  # one dispute of a line at a time


@pytest.mark.parametrize(
    ("team", "scope", "changed", "status"),
    [
        ("cv", "disputes:write", {}, 404),  # another team's document: not even that it exists
        ("nlp", "disputes:write", {"document": "AI-INFRA-2026-000009"}, 404),
        (None, "disputes:write", {}, 403),
        ("nlp", "invoices:read", {}, 403),
        ("nlp", "disputes:write", {"lines": []}, 400),
        ("nlp", "disputes:write", {"reason_code": "mood"}, 400),
        ("nlp", "disputes:write", {"amount": "0.001"}, 400),
        ("nlp", "disputes:write", {"amount": "1000.01"}, 409),
        ("nlp", "disputes:write", {"lines": [7]}, 409),
    ],
)
def test_what_is_not_the_teams_or_not_right_opens_nothing(
    team: str | None, scope: str, changed: dict[str, Any], status: int
) -> None:
    assert post(team, scope, **changed).status_code == status
    assert not Dispute.objects.exists()


def test_after_the_window_the_endpoint_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timezone.now() == OCTOBER_OVER + timedelta(days=5)
    monkeypatch.setattr("billing.api.credit_notes.timezone.now", lambda: OCTOBER_OVER + timedelta(days=13))
    answer = post("nlp", "disputes:write")
    assert (answer.status_code, "could be disputed until 2026-11-14" in answer.content.decode()) == (409, True)
