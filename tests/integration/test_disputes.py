"""Disputes: opened on lines by a team, decided within deadlines by somebody else, credited where the team is right."""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client

from billing.approvals.limits import AuthorityError
from billing.corrections.disputed import dispute_figures, disputes_of, overdue
from billing.corrections.models import Dispute
from billing.corrections.note_lines import NoteError
from billing.corrections.services.disputes import (
    DisputeError,
    dispute_add_evidence,
    dispute_ask_evidence,
    dispute_reject,
    dispute_triage,
    dispute_uphold,
)
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from billing.tenancy.models import AuditEntry
from tests.factories import money, person, signed_in
from tests.factories.api import program
from tests.factories.corrections import draft, issue, part, whole
from tests.factories.disputes import FRIDAY, october, opened

__all__ = ["october"]

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def test_every_step_of_a_dispute_is_kept_and_audited(october: str) -> None:
    dispute = opened(october)
    assert dispute.status == "open"
    dispute_triage(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="looking")
    dispute_ask_evidence(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="the log of the node")
    assert dispute_add_evidence(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="log").status == "triaged"
    upheld = dispute_uphold(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="node-7 failed for 10 minutes")
    assert upheld.correction is not None
    assert upheld.correction.evidence == f"dispute {dispute.pk}"
    (note,) = issue(upheld.correction, "lea")
    note.refresh_from_db()
    assert document_of(note)["reason"] == {"code": "sla", "text": "node-7 failed for 10 minutes"}
    assert [step.kind for step in dispute.steps.all()] == ["open", "triaged", "evidence", "evidence", "upheld"]
    actions = AuditEntry.objects.filter(action__startswith="dispute_").values_list("action", flat=True)
    assert list(actions) == [f"dispute_{kind}" for kind in ("open", "triaged", "evidence", "evidence", "upheld")]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"positions": (7,)}, "line 7"),
        ({"positions": ()}, "at least one line"),
        ({"positions": (1, 1)}, "name each line once"),
        ({"amount": "1000.01"}, "not between 0.01 and the 1000.00 left"),
        ({"amount": "0"}, "not between 0.01"),
        ({"amount": "0.001"}, "not between 0.01"),
        ({"code": "taste"}, "reason code 'taste'"),
    ],
)
def test_what_cannot_be_disputed_is_named(october: str, facts: dict[str, Any], said: str) -> None:
    with pytest.raises(DisputeError, match=said):
        opened(october, **facts)


def test_who_may_do_what(october: str) -> None:
    with pytest.raises(AuthorityError, match="kim may not dispute lines of nlp"):
        opened(october, actor="kim")
    dispute = opened(october, actor="lea")
    with pytest.raises(AuthorityError, match="tom may not work on"):
        dispute_triage(dispute_id=dispute.pk, actor="tom", now=FRIDAY)
    with pytest.raises(AuthorityError, match="lea opened dispute"):
        dispute_reject(dispute_id=dispute.pk, actor="lea", now=FRIDAY, text="no")
    with pytest.raises(DisputeError, match="not decided yet"):
        opened(october)


def test_a_line_with_an_undecided_correction_waits_for_it(october: str) -> None:
    draft(part("1.00"), number=october)
    with pytest.raises(NoteError, match="is not decided yet"):
        opened(october)


def test_a_dispute_of_what_was_credited_meanwhile_is_not_upheld_again(october: str) -> None:
    """All 1,000.00 of the line were credited by another correction: of the dispute's 100.00 nothing is left to credit."""
    dispute = opened(october)
    issue(draft(whole(), number=october, code="duplicate"))
    assert "less than 100.00 is left of these lines" in stepped(dispute, "uphold")
    assert Dispute.objects.get().status == "open"
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="credited already")


def stepped(dispute: Dispute, step: str) -> str:
    """What the page says to a step that is refused."""
    answer = signed_in(person("ana", "finance")).post(f"/disputes/{dispute.pk}/{step}/", {"text": "yes"})
    assert answer.status_code == 409
    return answer.content.decode()


def test_figures_and_deadlines(october: str) -> None:
    """100.00 of 1008.00 disputed; decided after three days, upheld; then 8.00 more, past both deadlines."""
    first = opened(october)
    later = datetime(2026, 11, 9, 9, tzinfo=UTC)
    dispute_uphold(dispute_id=first.pk, actor="sam", now=later, text="yes")
    second = opened(october, (2,), None)
    assert overdue(second, datetime(2026, 11, 10, 15, 59, tzinfo=UTC)) is None
    assert overdue(second, datetime(2026, 11, 10, 16, tzinfo=UTC)) == "triage"
    dispute_triage(dispute_id=second.pk, actor="sam", now=later)
    second.refresh_from_db()
    assert overdue(second, datetime(2026, 11, 10, 16, tzinfo=UTC)) is None
    now = datetime(2026, 11, 20, 16, tzinfo=UTC)
    assert overdue(second, now) == "decision"
    figures = dispute_figures(list(disputes_of()), now)
    assert (figures.number, figures.disputed, figures.billed, figures.overdue) == (2, money("108"), money("1008"), 1)
    assert (figures.rate, figures.median_age, figures.upheld_share) == (Fraction(3, 28), timedelta(days=3), 1)


def test_what_a_dispute_claims_stays(october: str) -> None:
    opened(october)
    for statement in (
        "UPDATE corrections_dispute SET amount = 1",
        "DELETE FROM corrections_dispute",
        "UPDATE corrections_disputestep SET text = 'x'",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


# Pages and API


def test_a_lead_opens_a_dispute_on_a_page_and_finance_decides_it(october: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoice = Invoice.objects.get()
    monkeypatch.setattr("django.utils.timezone.now", lambda: FRIDAY)
    tom, sam, kim = signed_in("tom"), signed_in("sam"), signed_in("kim")
    assert "Dispute lines" in tom.get(f"/invoices/{invoice.pk}/").content.decode()
    address = f"/disputes/new/{invoice.pk}/"
    assert kim.get(address).status_code == 404
    assert re.findall(r'value="(\d+)"[^>]* checked', tom.get(f"{address}?line=1").content.decode()) == ["1"]
    form = {"code": "sla", "statement": "node lost", "evidence": "INC-9", "line": "1"}
    refused = tom.post(address, {**form, "amount": "1000.01"})
    assert (refused.status_code, "is not between 0.01" in refused.content.decode()) == (422, True)
    assert tom.post(address, {**form, "amount": "100"}).status_code == 302
    dispute = Dispute.objects.get()
    steps = f"/disputes/{dispute.pk}/"
    assert kim.get(steps).status_code == 404
    assert "Uphold" not in tom.get(steps).content.decode()
    assert tom.post(steps + "uphold/", {"text": "yes"}).status_code == 409
    assert "Uphold" in sam.get(steps).content.decode()
    assert sam.post(steps + "ask/", {"text": "which node?"}).status_code == 302
    assert tom.post(steps + "evidence/", {"text": "node-7"}).status_code == 302
    assert sam.post(steps + "uphold/").status_code == 409
    assert sam.post(steps + "uphold/", {"text": "node-7 failed"}).status_code == 302
    assert sam.post(steps + "other/").status_code == 404
    assert "node-7 failed" in tom.get(steps).content.decode()
    listed = sam.get("/disputes/").content.decode()
    assert "9.9%" in listed  # 100 of 1008
    assert "100.0%" in listed


def test_the_api_lists_disputes_to_who_may_see_the_team(october: str) -> None:
    dispute = opened(october)
    cv, scenario = program("invoices:read", team="cv"), program("invoices:read")

    def get(path: str, reader: Client) -> Any:
        return reader.get(f"/api/v1/{path}")

    (one,) = get("disputes?team=nlp&status=open", scenario).json()["results"]
    assert (one["document"], one["lines"], one["amount"], one["steps"][0]["text"]) == (october, [1], "100.00", "INC-9")
    assert get("disputes", cv).json()["results"] == []
    assert get("disputes?status=x", scenario).status_code == 400
    assert get(f"disputes/{dispute.pk}", scenario).json()["id"] == dispute.pk
    assert get(f"disputes/{dispute.pk}", cv).status_code == 404
