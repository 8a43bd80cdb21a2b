"""Nobody alone makes money move: who closes does not approve, who asks for a credit does not grant it."""

import pytest

from billing.approvals.limits import AuthorityError
from billing.corrections.note_lines import NoteError
from billing.corrections.services.corrections import correction_approve, correction_issue, correction_void
from billing.corrections.services.settlement import SettlementError, document_settle
from billing.invoices.models import Correction
from billing.invoices.services.invoices import invoices_approve, invoices_preview
from tests.scenarios.company import Company, day, part

INVOICE = "AI-INFRA-2026-000001"


def test_an_invoice_goes_from_draft_over_preview_and_approval_to_issue_and_settlement(company: Company) -> None:
    company.company_rule(review="four-eyes")
    company.uses("nlp-train", gpus=10, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.closes("2026-10")
    assert (company.states("2026-10"), company.issues("2026-10")) == ({"nlp": "draft"}, 0)
    invoices_preview(month="2026-10", actor="sam")
    assert company.states("2026-10") == {"nlp": "preview"}
    shown = company.document("nlp", "2026-10")
    invoices_approve(month="2026-10", actor="fin")
    assert company.states("2026-10") == {"nlp": "approved"}
    assert company.issues("2026-10") == 1
    assert company.states("2026-10") == {"nlp": "issued"}
    issued = company.document("nlp", "2026-10")
    assert {name: issued[name] for name in shown} == shown, "the preview is the invoice that it became"
    assert company.invoice("nlp", "2026-10") == ["10 GPU-Hours of NVIDIA-H800 at 10.0000: 100.00", "total 100.00"]

    assert document_settle(number=INVOICE, reference="FI-77", actor="sam", now=day("2026-11-12"))
    assert not document_settle(number=INVOICE, reference="FI-77", actor="sam", now=day("2026-11-12"))
    assert company.states("2026-10") == {"nlp": "settled"}
    with pytest.raises(SettlementError, match="was posted as FI-77"):
        document_settle(number=INVOICE, reference="FI-78", actor="sam", now=day("2026-11-12"))
    with pytest.raises(AuthorityError):
        document_settle(number=INVOICE, reference="FI-77", actor="viv", now=day("2026-11-12"))


def test_who_asks_for_a_credit_does_not_approve_it(company: Company) -> None:
    bill_60_000(company)
    drafted = company.drafts_credit(INVOICE, part("10.00"), by="lea")
    with pytest.raises(AuthorityError, match="somebody else"):
        correction_approve(correction_id=drafted.pk, actor="lea", now=day("2026-11-12"))
    assert company.approves(drafted, by="sam") == ["AI-INFRA-CN-2026-000001, 2026-11", "allowance: -10.00"]


@pytest.mark.parametrize(
    ("amount", "refused", "approvers"),
    [
        ("1000.00", "viv", ["lea"]),
        ("1000.01", "lea", ["fin"]),
        ("50000.00", "lea", ["fin"]),
        ("50000.01", "lea", ["fin", "head"]),
    ],
)
def test_the_amount_decides_who_may_approve_and_how_many(
    company: Company, amount: str, refused: str, approvers: list[str]
) -> None:
    bill_60_000(company)
    drafted = company.drafts_credit(INVOICE, part(amount))
    with pytest.raises(AuthorityError, match=f"{refused} may not approve"):
        correction_approve(correction_id=drafted.pk, actor=refused, now=day("2026-11-12"))
    for approver in approvers:
        with pytest.raises(NoteError, match="approve it first"):
            correction_issue(correction_id=drafted.pk, actor=approver, now=day("2026-11-12"))
        for _ in range(1 if approver == approvers[-1] else 2):  # twice the same person is one approval
            assert drafted.status == "draft"
            drafted = correction_approve(correction_id=drafted.pk, actor=approver, now=day("2026-11-12"))
    assert drafted.status == "approved"
    correction_issue(correction_id=drafted.pk, actor="sam", now=day("2026-11-12"))
    assert company.notes() == [f"AI-INFRA-CN-2026-000001 nlp -{amount}"]


@pytest.mark.parametrize(
    ("before", "amount", "approvers"),
    [
        ("600.00", "400.00", ["lea"]),
        ("600.00", "400.01", ["fin"]),
        ("30000.00", "20000.00", ["fin"]),
        ("30000.00", "20000.01", ["fin", "head"]),
        ("50000.01", "1000.00", ["lea"]),  # what two approvers saw as a whole is no part of anything
    ],
)
def test_parts_of_a_credit_are_approved_as_the_whole_would_be(
    company: Company, before: str, amount: str, approvers: list[str]
) -> None:
    bill_60_000(company)
    for approver in ("fin", "head") if before == "50000.01" else ("fin",):
        earlier = Correction.objects.first() or company.drafts_credit(INVOICE, part(before))
        correction_approve(correction_id=earlier.pk, actor=approver, now=day("2026-11-12"))
    correction_issue(correction_id=earlier.pk, actor="sam", now=day("2026-11-12"))
    drafted = company.drafts_credit(INVOICE, part(amount))
    if "lea" not in approvers:
        with pytest.raises(AuthorityError, match=f"with {before} asked for or corrected before of the same team and month"):
            correction_approve(correction_id=drafted.pk, actor="lea", now=day("2026-11-12"))
    for approver in approvers:
        assert drafted.status == "draft"
        drafted = correction_approve(correction_id=drafted.pk, actor=approver, now=day("2026-11-12"))
    assert drafted.status == "approved"


@pytest.mark.parametrize(
    ("amount", "by", "on", "approvers"),
    [
        ("20000.00", "sam", "2026-11-12", ["fin"]),
        ("20000.01", "sam", "2026-11-12", ["fin", "head"]),
        ("1000.00", "sam", "2026-11-12", ["lea"]),  # small ones stay with finance
        ("20000.01", "lea", "2026-11-12", ["fin"]),  # somebody else asks
        ("20000.01", "sam", "2026-12-01", ["fin"]),  # in another billing month
    ],
)
def test_parts_that_one_person_spreads_over_teams_are_approved_as_the_whole_would_be(
    company: Company, amount: str, by: str, on: str, approvers: list[str]
) -> None:
    for namespace in ("nlp-train", "cv"):
        company.uses(namespace, gpus=100, since="2026-10-10 00:00", until="2026-10-12 12:00")
    company.bills("2026-10")
    company.drafts_credit(company.number("nlp", "2026-10"), part("30000.00"))
    drafted = company.drafts_credit(company.number("cv", "2026-10"), part(amount), by=by, on=on)
    for approver in approvers:
        assert drafted.status == "draft"
        drafted = correction_approve(correction_id=drafted.pk, actor=approver, now=day(on))
    assert drafted.status == "approved"


def test_a_credit_that_waits_counts_and_a_dropped_one_does_not(company: Company) -> None:
    """600.00 of each of two lines wait: neither is for finance alone until the other one is dropped."""
    for namespace in ("nlp-train", "nlp-eval"):
        company.uses(namespace, gpus=10, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.bills("2026-10")
    one, other = (company.drafts_credit(INVOICE, part("600.00", line)) for line in (1, 2))
    with pytest.raises(AuthorityError, match="lea may not approve"):
        correction_approve(correction_id=one.pk, actor="lea", now=day("2026-11-12"))
    correction_void(correction_id=other.pk, actor="sam", reason="asked twice", now=day("2026-11-12"))
    assert correction_approve(correction_id=one.pk, actor="lea", now=day("2026-11-12")).status == "approved"


@pytest.mark.parametrize("actor", ["viv", "fin", "nobody"])
def test_only_finance_asks_for_a_credit(company: Company, actor: str) -> None:
    bill_60_000(company)
    with pytest.raises(AuthorityError, match=f"{actor} may not ask"):
        company.drafts_credit(INVOICE, part("1.00"), by=actor)
    assert company.notes() == []


def test_a_write_off_takes_an_approver_whatever_its_amount(company: Company) -> None:
    bill_60_000(company)
    drafted = company.drafts_credit(INVOICE, part("5.00"), because="write_off")
    with pytest.raises(AuthorityError, match="right approve"):
        correction_approve(correction_id=drafted.pk, actor="lea", now=day("2026-11-12"))
    assert company.approves(drafted, by="fin") == ["AI-INFRA-CN-2026-000001, 2026-11", "allowance: -5.00"]
    large = company.drafts_credit(INVOICE, part("50000.01"), because="write_off")
    statuses = [
        correction_approve(correction_id=large.pk, actor=approver, now=day("2026-11-12")).status
        for approver in ("fin", "head")
    ]
    assert statuses == ["draft", "approved"], "above the limit two approvers, as for any other credit"


def bill_60_000(company: Company) -> None:
    """600 devices for 10 hours at 10."""
    company.uses("nlp-train", gpus=600, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.bills("2026-10")
