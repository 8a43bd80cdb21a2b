"""A closed month of which nothing was issued is opened again by two persons, and closed anew with all that was learned."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client

from billing.closing.models import PeriodReopening
from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.closing.services.reopening import ReopeningError, reopening_approve, reopening_reject, reopening_request
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.rating.models import Charge
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create
from billing.usage.models import Close
from tests.factories import SET_UP, allocation_record, apply, approves, ingest_allocations, person, signed_in
from tests.factories.closing import sql
from tests.factories.commands import Manage
from tests.factories.months import OCTOBER_OVER

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
ALLOWED = {**SET_UP["billing"], "reopening": "two-persons"}
TEN_HOURS = {"quantity": 1, "ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}

APPROVED = """INSERT INTO approvals_step (proposal_id, at, actor, action, comment, revision, payload)
              SELECT id, now(), '{}', 'approved', '', revision, payload FROM approvals_proposal"""


@pytest.fixture(autouse=True, scope="module")
def house(for_all_tests: Path) -> None:
    """nlp held one GPU for ten hours at 10.0000 in October: 100.00; lin of finance, ada and eve who approve."""
    apply(for_all_tests, billing=ALLOWED)
    ingest_allocations(allocation_record(1, **TEN_HOURS))
    for name, role in (("lin", "finance"), ("ada", "approver"), ("eve", "auditor"), ("lead", "lead")):
        person(name, role)


def close(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> Any:
    return period_close(month=month, actor="lin", now=now)


def request(actor: str = "lin", reason: str = "site B reported late") -> PeriodReopening:
    return reopening_request(month="2026-10", reason=reason, actor=actor, now=OCTOBER_OVER)


def reopen() -> PeriodReopening:
    return reopening_approve(reopening_id=request().pk, actor="ada", now=OCTOBER_OVER + timedelta(hours=1))


def test_the_drafts_of_the_withdrawn_close_stay_readable_and_its_charges_are_nobodys() -> None:
    close()
    asked = reopen()
    (draft,) = Invoice.objects.all()
    assert (draft.status, draft.void_reason) == ("void", "2026-10 was opened again: site B reported late")
    assert (asked.drafts, asked.close_seq, asked.closed_by, asked.closed_at) == (1, 1, "lin", OCTOBER_OVER)
    close()
    assert sorted(Charge.objects.values_list("close_seq", flat=True)) == [1, 2]
    assert list(Close.objects.order_by("close_seq").values_list("close_seq", "withdrawn_at")) == [
        (1, OCTOBER_OVER + timedelta(hours=1)), (2, None),
    ]  # fmt: skip
    assert BillingPeriod.objects.get().close_seq == 2


def test_the_log_names_both_and_the_report_contains_it() -> None:
    close()
    reopen()
    reported = AuditEntry.objects.filter(action__in=("reopening_request", "period_reopen")).order_by("id")
    asked = {"reason": "site B reported late", "requested_by": "lin", "close_seq": 1}
    assert list(reported.values_list("action", "actor", "subject", "detail")) == [
        ("reopening_request", "lin", "2026-10", asked),
        ("period_reopen", "ada", "2026-10", {**asked, "approved_by": "ada", "drafts": 1}),
    ]
    (row,) = build_report(period_of("2026-10"), now=OCTOBER_OVER).as_dict()["reopenings"]
    assert row == {
        "id": row["id"], "status": "approved", "reason": "site B reported late", "requested_by": "lin",
        "requested_at": OCTOBER_OVER.isoformat(), "decided_by": "ada",
        "decided_at": (OCTOBER_OVER + timedelta(hours=1)).isoformat(), "decision": None, "closed_by": "lin",
        "closed_at": OCTOBER_OVER.isoformat(), "drafts_voided": 1,
    }  # fmt: skip


def test_a_request_has_a_reason_and_waits_alone() -> None:
    close()
    with pytest.raises(ReopeningError, match="say why the month is to be opened again"):
        request(reason=" ")
    asked = request()
    with pytest.raises(ReopeningError, match="somebody asked already"):
        request()
    with pytest.raises(ReopeningError, match="say why the reopening is turned down"):
        reopening_reject(reopening_id=asked.pk, reason="", actor="ada", now=OCTOBER_OVER)
    reopening_reject(reopening_id=asked.pk, reason="bill it late", actor="ada", now=OCTOBER_OVER)
    with pytest.raises(ReopeningError, match="is rejected: only one that waits"):
        reopening_approve(reopening_id=asked.pk, actor="ada", now=OCTOBER_OVER)
    assert request().pk != asked.pk


def test_an_issued_month_stays_closed_also_where_it_was_issued_after_somebody_asked() -> None:
    close()
    asked = request()
    invoices_issue(month="2026-10", actor="lin", now=OCTOBER_OVER)
    with pytest.raises(ReopeningError, match="are issued and never change: correct them"):
        reopening_approve(reopening_id=asked.pk, actor="ada", now=OCTOBER_OVER)
    reopening_reject(reopening_id=asked.pk, reason="it is issued", actor="lin", now=OCTOBER_OVER)
    with pytest.raises(ReopeningError, match="are issued and never change"):
        request()
    assert Close.objects.get().withdrawn_at is None


def test_it_is_off_unless_the_set_up_allows_it(tmp_path: Path) -> None:
    close()
    asked = request()
    apply(tmp_path)
    for attempt in (request, lambda: reopening_approve(reopening_id=asked.pk, actor="ada", now=OCTOBER_OVER)):
        with pytest.raises(ReopeningError, match="closed months stay closed here"):
            attempt()
    assert BillingPeriod.objects.get().status == "closed"


def test_an_open_month_is_not_reopened() -> None:
    with pytest.raises(ReopeningError, match="period 2026-10 is open"):
        request()
    period_open(month="2026-10")
    with pytest.raises(ReopeningError, match="period 2026-10 is open"):
        request()


def test_the_database_opens_no_month_without_an_approval() -> None:
    close()
    opened = "UPDATE invoices_billingperiod SET status = 'open', close_seq = NULL"
    with pytest.raises(DatabaseError, match="period 2026-10 is closed"):
        sql(opened)
    request()
    with pytest.raises(DatabaseError, match="period 2026-10 is closed"):
        sql(opened)
    with pytest.raises(DatabaseError, match="is decided by a step of its history"):
        sql("UPDATE approvals_proposal SET state = 'approved'")
    sql(APPROVED.format("ada"))
    sql("UPDATE approvals_proposal SET state = 'approved'")
    invoices_issue(month="2026-10", actor="lin", now=OCTOBER_OVER)
    with pytest.raises(DatabaseError, match="period 2026-10 is closed"):
        sql(opened)  # approved, but a document of it is out
    for statement in (
        "DELETE FROM approvals_proposal", "UPDATE usage_close SET start = now()", "DELETE FROM usage_close",
    ):
        with pytest.raises(DatabaseError, match="stay"):
            sql(statement)
    with pytest.raises(DatabaseError, match="is approved and never changes"):
        sql("UPDATE approvals_proposal SET reason = 'x'")


def test_the_command_asks_approves_and_lists(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    close()
    call_command("period_reopen", "request", "2026-10", "--reason", "site B", "--by", "lin")
    assert "2026-10: site B (asked by lin, waits for a second person)" in capsys.readouterr().out
    for by, said in (("lin", "somebody else must approve"), ("eve", "with the right close or approve")):
        assert said in Manage(capsys)("period_reopen", "approve", "2026-10", "--by", approves(monkeypatch, by)).error
    call_command("period_reopen", "approve", "2026-10", "--by", approves(monkeypatch, "ada"))
    assert "(asked by lin, approved by ada, 1 drafts voided)" in capsys.readouterr().out
    assert "nobody asked to open 2026-10 again" in Manage(capsys)("period_reopen", "approve", "2026-10", "--by", "ada").error
    (row,) = json.loads(Manage(capsys)("period_reopen", "list", "2026-10", "--json").out)["reopenings"]
    assert (row["requested_by"], row["decided_by"], row["drafts_voided"]) == ("lin", "ada", 1)
    assert "reopened: asked by lin, approved by ada: site B" in Manage(capsys)("period_report", "2026-10").out


def test_the_page_offers_each_person_their_own_step() -> None:
    close()
    page, step = "/close/?month=2026-10", "/close/2026-10/reopenings/"
    assert "Ask to open it again" in signed_in("lin").get(page).content.decode()
    assert "Ask to open it again" not in signed_in("eve").get(page).content.decode()
    for name, said, status in (("lin", {"reason": ""}, 409), ("eve", {"reason": "x"}, 403), ("ada", {"reason": "x"}, 403)):
        assert signed_in(name).post(step, said).status_code == status, name
    assert signed_in("lin").post(step, {"reason": "site <b> late"}).status_code == 302
    reported = signed_in("lin").get(page).content.decode()
    assert "site &lt;b&gt; late" in reported
    assert ("Waits for approval" in reported, "Open again…" in reported) == (True, False)
    assert "等待批准" in signed_in("lin", "zh-hans").get(page).content.decode()
    assert signed_in("lin").post(step, {"step": "approve"}).status_code == 403
    assert "Open again…" in signed_in("ada").get(page).content.decode()
    assert signed_in("ada").post(step, {"step": "approve"}).status_code == 302
    assert BillingPeriod.objects.get().status == "open"
    reported = signed_in("eve").get(page).content.decode()
    assert ("1 draft voided" in reported, "ada, " in reported) == (True, True)
    file = signed_in("eve").get(page + "&table=reopenings&as=csv").content.decode()
    assert "approved,site <b> late,lin," in file
    assert signed_in("ada").post(step, {"step": "approve"}).status_code == 409
    assert signed_in("ada").post(step, {"step": "dance"}).status_code == 404


def test_the_api_takes_people_and_no_tokens() -> None:
    close()
    door = "/api/v1/periods/2026-10/reopenings"
    _, token = api_token_create(name="all", scopes=["invoices:read", "journal:acknowledge"], actor="t")
    bearer = {"authorization": f"Bearer {token}"}
    said: dict[str, Any] = {"content_type": "application/json"}
    assert Client().post(door, {"action": "request", "reason": "x"}, headers=bearer, **said).status_code == 403
    assert signed_in("lin").post(door, {"action": "request"}, **said).status_code == 409
    asked = signed_in("lin").post(door, {"action": "request", "reason": "site B"}, **said)
    assert (asked.status_code, asked.json()["status"]) == (200, "requested")
    refused = signed_in("lin").post(door, {"action": "approve"}, **said)
    assert (refused.status_code, "somebody else must approve" in refused.json()["detail"]) == (409, True)
    done = signed_in("ada").post(door, {"action": "approve"}, **said)
    assert (done.status_code, done.json()["decided_by"], done.json()["drafts_voided"]) == (200, "ada", 1)
