"""Terms of commitments: proposed by one person, approved by another, dated, and never in closed time."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client

from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.portal.commitments import commitment_uses
from billing.rates.models import Commitment, CommitmentDraft
from billing.rates.services import CommitmentTerms, RateError
from billing.rating.services.commitment_terms import (
    terms_approve,
    terms_propose,
    terms_propose_end,
    terms_reject,
    terms_withdraw,
)
from billing.tenancy.models import AuditEntry, Team
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations, known_accelerators, own_token, person, signed_in
from tests.factories.closing import close, lines
from tests.factories.months import NOVEMBER_OVER
from tests.factories.pages import statements_of

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
NOW = datetime(2026, 10, 12, tzinfo=UTC)
OCTOBER = datetime(2026, 9, 30, 16, tzinfo=UTC)
NOVEMBER = datetime(2026, 10, 31, 16, tzinfo=UTC)
DECEMBER = datetime(2026, 11, 30, 16, tzinfo=UTC)
FIELDS = {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1,000",
          "price_per_gpu_hour": "8", "reason": "the yearly plan"}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def scenario(for_all_tests: Path) -> None:
    """lin is of finance, ada approves, tom leads nlp, which holds 10 GPUs for 10 hours on 5 October: 100 hours."""
    apply(for_all_tests)
    known_accelerators("NVIDIA-H80", "NVIDIA-A100")  # pools that no price list names
    for name, role in (("lin", "finance"), ("ada", "approver"), ("eve", "auditor")):
        person(name, role)
    person("tom", "lead", team="nlp")
    at = {"started_at": "2026-10-05T00:00:00Z", "ended_at": "2026-10-05T10:00:00Z", "observed_until": "2026-10-05T10:00:00Z"}
    ingest_allocations(allocation_record(1, quantity=10, **at))


def terms(name: str = "nlp-2026", hours: str = "1000", start: datetime = OCTOBER, **changed: Any) -> CommitmentTerms:
    return CommitmentTerms(
        name, Team.objects.get(code="nlp"), changed.get("accelerator", "NVIDIA-H800"), Decimal(hours),
        Decimal(changed.get("price", "8.0000")), start, changed.get("until"),
    )  # fmt: skip


def propose(wanted: CommitmentTerms | None = None, actor: str = "lin", reason: str = "the plan") -> CommitmentDraft:
    return terms_propose(terms=wanted or terms(), actor=actor, now=NOW, reason=reason)


def approve(draft: CommitmentDraft, actor: str = "ada", now: datetime = NOW) -> CommitmentDraft:
    return terms_approve(draft_id=draft.pk, actor=actor, now=now)


def stored() -> list[tuple[str, datetime, datetime | None, str]]:
    return list(Commitment.objects.order_by("valid_from").values_list("name", "valid_from", "valid_until", "created_by"))


def test_proposed_terms_bill_nothing_before_somebody_else_approves_them() -> None:
    draft = propose()
    assert (draft.word, stored()) == ("proposed", [])
    assert approve(draft).state == "approved"
    assert stored() == [("nlp-2026", OCTOBER, None, "ada")]
    close()
    assert Invoice.objects.get().total == Decimal("8000.00")  # 100 used and 900 unused at 8.0000
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    reported = AuditEntry.objects.filter(action__startswith="commitment_").order_by("id").values_list("action", "actor")
    assert list(reported) == [("commitment_propose", "lin"), ("commitment_put", "ada"), ("commitment_approved", "ada")]
    assert AuditEntry.objects.get(action="commitment_approved").detail["requested_by"] == "lin"


def test_new_terms_follow_and_end_those_before_them() -> None:
    approve(propose())
    draft = propose(terms("nlp-2027", "500", DECEMBER))
    assert "ends nlp-2026" in signed_in("ada").get("/commitments/?month=2026-10").content.decode()
    approve(draft)
    assert stored() == [("nlp-2026", OCTOBER, DECEMBER, "ada"), ("nlp-2027", DECEMBER, None, "ada")]


@pytest.mark.parametrize("until", [None, datetime(2027, 9, 30, 16, tzinfo=UTC)])
def test_hours_bought_for_a_month_are_added_and_end_no_longer_ones(until: datetime | None) -> None:
    approve(propose(terms(until=until)))
    draft = propose(terms("more", "500", NOVEMBER, until=DECEMBER))
    propose(terms("unknown", "500", NOVEMBER, accelerator="NVIDIA-H80"))
    page = signed_in("ada").get("/commitments/?month=2026-10").content.decode()
    assert (page.count("added to nlp-2026"), page.count("not in the price list")) == (1, 1)
    approve(draft)
    assert stored() == [("nlp-2026", OCTOBER, until, "ada"), ("more", NOVEMBER, DECEMBER, "ada")]


@pytest.mark.parametrize("actor", ["lin", " LIN "])
def test_nobody_approves_or_turns_down_their_own_terms(actor: str) -> None:
    draft = propose()
    with pytest.raises(RateError, match="proposed commitment nlp-2026: somebody else must approve"):
        approve(draft, actor)
    with pytest.raises(RateError, match="proposed commitment nlp-2026: withdraw it instead"):
        terms_reject(draft_id=draft.pk, actor=actor, now=NOW, reason="no")
    step = """INSERT INTO approvals_step (proposal_id, at, actor, action, comment, revision, payload)
              SELECT id, now(), %s, 'approved', '', revision, payload FROM approvals_proposal"""
    refused = pytest.raises(IntegrityError, match="no maker decides on a proposal")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(step, [actor])
    assert stored() == []


def test_closed_months_never_change_neither_when_proposed_nor_when_approved() -> None:
    early = propose()
    approve(propose(terms("cv-like", "10", NOVEMBER, accelerator="NVIDIA-A100")))
    close()
    before = Invoice.objects.get().sha256, Invoice.objects.get().total
    for attempt in (lambda: approve(early), lambda: propose(terms("again"))):
        with pytest.raises(RateError, match="closed month, whose bills are final; the first instant is 2026-10-31T16"):
            attempt()
    with pytest.raises(RateError, match="lies in a closed month"):
        terms_propose_end(name="cv-like", at=OCTOBER, actor="lin", now=NOW, reason="x")
    approve(propose(terms("november", "10", NOVEMBER)))
    assert before == (Invoice.objects.get().sha256, Invoice.objects.get().total)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_a_commitment_is_ended_earlier_by_two_persons_and_buys_its_part_of_the_month() -> None:
    approve(propose())
    half = datetime(2026, 10, 16, 4, tzinfo=UTC)  # 15.5 of the 31 days of October in Shanghai
    draft = terms_propose_end(name="nlp-2026", at=half, actor="lin", now=NOW, reason="the project is over")
    assert stored()[0][2] is None
    approve(draft)
    assert stored() == [("nlp-2026", OCTOBER, half, "ada")]
    close()
    assert Invoice.objects.get().total == Decimal("4000.00")  # 500 hours at 8.0000
    assert AuditEntry.objects.get(action="commitment_end").detail == {"valid_until": half.isoformat(), "before": None}
    with pytest.raises(RateError, match="does not lie within its time"):
        terms_propose_end(name="nlp-2026", at=DECEMBER, actor="lin", now=NOW, reason="x")


def test_an_end_that_is_agreed_later_leaves_closed_months_as_they_were_billed() -> None:
    """100 h, and from the third on 290 of more (29 of 31 days). The 100 h of the 5th are those of nlp-2026, which began
    first, also when more ends first. So none of the 80 h that come late of the first are bought.
    """
    third = datetime(2026, 10, 2, 16, tzinfo=UTC)
    approve(propose(terms(hours="100", until=datetime(2027, 9, 30, 16, tzinfo=UTC))))
    approve(propose(terms("more", "310", third, price="9")))
    close()
    approve(terms_propose_end(name="more", at=DECEMBER, actor="lin", now=NOW, reason="the project is over"))
    at = {"started_at": "2026-10-01T00:00:00Z", "ended_at": "2026-10-01T08:00:00Z", "observed_until": "2026-10-01T08:00:00Z"}
    ingest_allocations(allocation_record(2, quantity=10, **at))
    close("2026-11", NOVEMBER_OVER)
    fields = ("policy", "reason", "quantity", "amount")
    october, november = ([tuple(line[name] for name in fields) for line in lines("nlp", f"2026-{n}")] for n in (10, 11))
    assert october == [("more", "unused", "290.000000", "2610.00"), ("nlp-2026", "used", "100.000000", "800.00")]
    assert [line for line in november if line[1] != "unused"] == [(None, None, "80.000000", "800.00")]
    assert all(proof.holds for month in ("2026-10", "2026-11") for proof in period_verify(month=month))


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"hours": "0"}, "gpu_hours_per_month 0: must be above 0"),
        ({"hours": "1.0000001"}, "gpu_hours_per_month 1.0000001: must be above 0, with at most 6 decimals"),
        ({"hours": "NaN"}, "gpu_hours_per_month NaN"),
        ({"price": "8.00001"}, "price_per_gpu_hour 8.00001: must be above 0, with at most 4 decimals"),
        ({"name": " x"}, "must be printable text"),
        ({"accelerator": ""}, "name the product"),
        ({"until": OCTOBER}, "valid_until must be after valid_from"),
    ],
)
def test_terms_that_cannot_be_are_refused_when_they_are_proposed(changed: dict[str, Any], reported: str) -> None:
    with pytest.raises(RateError, match=reported):
        propose(terms(**changed))
    assert not CommitmentDraft.objects.exists()


def test_a_proposal_has_a_reason_waits_alone_and_is_decided_once() -> None:
    with pytest.raises(RateError, match="say why"):
        propose(reason=" ")
    draft = propose()
    with pytest.raises(RateError, match="wait for approval already"):
        propose()
    with pytest.raises(RateError, match="say why the terms are turned down"):
        terms_reject(draft_id=draft.pk, actor="ada", now=NOW, reason="")
    terms_reject(draft_id=draft.pk, actor="ada", now=NOW, reason="too dear")
    with pytest.raises(RateError, match="is rejected: only what waits can be approved"):
        approve(draft)
    again = propose()
    terms_withdraw(draft_id=again.pk, actor="lin", now=NOW)
    approve(propose())
    with pytest.raises(RateError, match="is stored and never changes"):
        propose()
    for statement, reported in (
        ("UPDATE approvals_proposal SET payload = '{}' WHERE state = 'rejected'", "changes only as a draft"),
        ("UPDATE approvals_proposal SET payload = '{}' WHERE state = 'approved'", "is approved and never changes"),
        ("DELETE FROM approvals_proposal", "stays in the history"),
    ):
        refused = pytest.raises(DatabaseError, match=reported)
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_the_page_takes_terms_and_offers_each_person_their_own_step() -> None:
    page = "/commitments/?month=2026-10"
    assert "Propose terms…" in signed_in("lin").get(page).content.decode()
    assert "Propose terms…" not in signed_in("ada").get(page).content.decode()
    form = {**FIELDS, "valid_from": "2027-01-01"}
    bad = signed_in("lin").post("/commitments/drafts/", {**form, "gpu_hours_per_month": "many"})
    assert (bad.status_code, "is not a decimal" in bad.content.decode()) == (409, True)
    grouped = signed_in("lin").post("/commitments/drafts/", {**form, "gpu_hours_per_month": "1_000"})
    assert (grouped.status_code, "is not a decimal" in grouped.content.decode()) == (409, True)
    assert "the yearly plan" in bad.content.decode()  # nothing that was written is lost
    assert signed_in("lin").post("/commitments/drafts/", form).status_code == 302
    draft = CommitmentDraft.objects.get()
    assert (draft.gpu_hours, draft.price) == (Decimal(1000), Decimal(8))
    assert draft.valid_from == datetime(2026, 12, 31, 16, tzinfo=UTC)
    step = f"/commitments/drafts/{draft.pk}/approve/"
    assert step in signed_in("ada").get(page).content.decode()
    assert step not in signed_in("lin").get(page).content.decode()
    assert "等待批准" in signed_in("tom", "zh-hans").get(page).content.decode()
    assert signed_in("lin").post(step).status_code == 403
    assert signed_in("ada").post(step, {"reason": "as planned"}).status_code == 302
    assert signed_in("ada").post(step).status_code == 409
    assert Commitment.objects.get().created_by == "ada"
    ended = {"ends": "yes", "name": "nlp-2026", "valid_until": "2027-07-01", "reason": "half a year"}
    assert signed_in("lin").post("/commitments/drafts/", ended).status_code == 302
    shown = signed_in("tom").get(page).content.decode()
    assert ("ends 2027-07-01" in shown or "ends 1 Jul" in shown, "half a year" in shown) == (True, True)
    file = signed_in("tom").get(page + "&table=drafts&as=csv").content.decode().removeprefix("\ufeff")
    assert [row["state"] for row in csv.DictReader(io.StringIO(file))] == ["proposed", "approved"]


def test_the_endpoints_take_proposals_and_decisions() -> None:
    endpoint, said = "/api/v1/commitments/drafts", {"content_type": "application/json"}
    _, writer = api_token_create(name="maker", scopes=["prices:write"], actor="t")
    _, approver = own_token(person("cem", "approver"), "checker", "prices:approve")
    terms_of = {**FIELDS, "gpu_hours_per_month": "1000", "valid_from": "2026-12-01T00:00:00+08:00"}
    by = lambda token: {"authorization": f"Bearer {token}"}  # noqa: E731
    assert Client().post(endpoint, terms_of, headers=by(approver), **said).status_code == 403
    missing = Client().post(endpoint, {"name": "x", "reason": "y"}, headers=by(writer), **said)
    assert (missing.status_code, "valid_from" in missing.content.decode()) == (400, True)
    made = Client().post(endpoint, terms_of, headers=by(writer), **said)
    assert (made.status_code, made.json()["state"], made.json()["ends"]) == (201, "proposed", False)
    step = f"{endpoint}/{made.json()['id']}/approve"
    assert Client().post(step, {}, headers=by(writer), **said).status_code == 403
    done = Client().post(step, {"reason": "ok"}, headers=by(approver), **said)
    assert (done.status_code, done.json()["decided_by"]) == (200, "token:checker")
    assert Client().post(step, {}, headers=by(approver), **said).status_code == 409
    listed = json.loads(signed_in("tom").get(endpoint).content)
    assert [row["name"] for row in listed["results"]] == ["nlp-2026"]


@pytest.mark.parametrize(("given", "begins"), [
    ("2026-12-01", "2026-11-30T16:00:00+00:00"), ("2026-12-01T00:00:00+08:00", "2026-11-30T16:00:00+00:00"),
    ("2026-12-01T00:00:00", None), ("1999-12-31", None),
])  # fmt: skip
def test_the_endpoint_takes_a_day_of_the_billing_zone_and_no_time_without_offset(given: str, begins: str | None) -> None:
    """Midnight in Shanghai; taken for UTC, a thousand hours of December would be 989.247312."""
    _, writer = api_token_create(name="maker", scopes=["prices:write"], actor="t")
    answer = Client().post(
        "/api/v1/commitments/drafts", {**FIELDS, "gpu_hours_per_month": "1000", "valid_from": given},
        headers={"authorization": f"Bearer {writer}"}, content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == (201 if begins else 400)
    if begins is None:
        assert "valid_from" in answer.content.decode()
        assert "a date, or an RFC 3339 instant with an offset, from 2000 to 2199" in answer.content.decode()
    else:
        assert datetime.fromisoformat(answer.json()["valid_from"]) == datetime.fromisoformat(begins)


def test_an_open_month_says_what_is_used_up_by_its_end_and_what_the_rest_would_cost_at_the_list_price() -> None:
    """100 of 1,000 hours by the evening of the 10th of 31 days: 310 expected, 690 left; the list price is 10.0000."""
    approve(propose())
    now = datetime(2026, 10, 10, 16, tzinfo=UTC)
    month = statements_of()
    (use,) = commitment_uses(month, list(Team.objects.filter(code="nlp")), now)
    assert (use.used, use.unused) == (100, 900)
    assert (use.unused_amount, use.unused_at_list) == (Decimal("7200.00"), Decimal("9000.00"))
    assert use.pace is not None
    assert (use.pace.used, use.pace.unused, use.pace.beyond) == (310, 690, 0)
    assert use.pace.burn == Decimal("0.3100")  # a tenth of the hours in 10/31 of the time
    for instant in (datetime(2026, 10, 3, 15, 59, tzinfo=UTC), NOVEMBER):
        assert commitment_uses(month, list(Team.objects.filter(code="nlp")), instant)[0].pace is None
