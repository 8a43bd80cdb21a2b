"""A team disputes what it was billed: somebody else decides in time, and a credit note follows where the team is right."""

import pytest

from billing.approvals.limits import AuthorityError
from billing.corrections.models import Dispute
from billing.corrections.services.disputes import (
    DisputeError,
    dispute_add_evidence,
    dispute_ask_evidence,
    dispute_escalate,
    dispute_reject,
    dispute_triage,
    dispute_uphold,
    dispute_withdraw,
)
from billing.corrections.services.settlement import SettlementError, document_settle
from billing.invoices.models import Correction
from tests.factories import money
from tests.scenarios.company import Company, day, whole

INVOICE = "AI-INFRA-2026-000001"
FRIDAY = day("2026-11-06")


@pytest.fixture
def october(company: Company) -> Company:
    """nlp was billed 1,000.00 for devices (line 1) and 8.00 for tokens (line 2) on Sunday 1 November."""
    company.uses("nlp-train", gpus=10, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.writes(output=1, on="2026-10-15")
    company.bills("2026-10")
    return company


def upheld(company: Company, dispute: Dispute, *, by: str = "sam", approved_by: str = "lea") -> list[str]:
    """The team is right; the notes that follow."""
    decided = dispute_uphold(dispute_id=dispute.pk, actor=by, now=FRIDAY, text="node-7 failed for 10 minutes")
    assert decided.correction is not None
    return company.approves(decided.correction, by=approved_by)


def test_a_dispute_that_is_upheld_becomes_a_credit_note(october: Company) -> None:
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    assert (dispute.triage_due, dispute.decision_due) == (day("2026-11-11"), day("2026-11-21"))
    assert october.state(INVOICE) == "disputed"
    dispute_triage(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="looking")
    dispute_ask_evidence(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="the log of the node")
    dispute_add_evidence(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="log")
    assert upheld(october, dispute) == ["AI-INFRA-CN-2026-000001, 2026-11", "allowance: -100.00"]
    assert (october.state(INVOICE), october.owes("nlp")) == ("issued", "908.00")


def test_all_of_several_lines_is_credited_line_by_line(october: Company) -> None:
    assert upheld(october, october.disputes(INVOICE, 1, 2, because="duplicate"), approved_by="fin") == [
        "AI-INFRA-CN-2026-000001, 2026-11",
        "reversal: -100 GPU-Hours of NVIDIA-H800 at 10.0000: -1000.00",
        "reversal: -1 1M Tokens of output of llama-3-8b at 8.0000: -8.00",
    ]


def test_an_amount_of_several_lines_is_shared_out_to_the_cent(october: Company) -> None:
    """100.00 over 1000.00 and 8.00: 99.206... and 0.793..."""
    assert upheld(october, october.disputes(INVOICE, 1, 2, amount="100.00")) == [
        "AI-INFRA-CN-2026-000001, 2026-11", "allowance: -99.21", "allowance: -0.79",
    ]  # fmt: skip


def test_a_rejected_dispute_is_escalated_once_and_decided_by_somebody_else(october: Company) -> None:
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="the node was up")
    with pytest.raises(DisputeError, match="was rejected for that reason: escalate it"):
        october.disputes(INVOICE, 1, amount="100.00")
    with pytest.raises(AuthorityError, match="kim may not escalate"):
        dispute_escalate(dispute_id=dispute.pk, actor="kim", now=FRIDAY, text="no")
    dispute_escalate(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="the log says otherwise")
    assert october.state(INVOICE) == "disputed"
    with pytest.raises(AuthorityError, match="sam may not decide"):
        dispute_uphold(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="well")
    again = dispute_reject(dispute_id=dispute.pk, actor="fin", now=FRIDAY, text="the log is of another node")
    assert (again.status, again.decided_by) == ("rejected", "fin")
    with pytest.raises(DisputeError, match="escalated already"):
        dispute_escalate(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="but")
    assert october.notes() == []


def test_an_escalated_dispute_may_still_be_upheld_and_its_credit_is_approved_by_somebody_else(october: Company) -> None:
    """sam, who rejected it, was noted as who asked for the credit, and fin alone decided and approved."""
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="no")
    dispute_escalate(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="yes")
    with pytest.raises(AuthorityError, match="fin asked for correction"):
        upheld(october, dispute, by="fin", approved_by="fin")
    correction = Correction.objects.get()
    assert (correction.requested_by, correction.amount) == ("fin", money("100.00"))
    assert october.approves(correction, by="head")[1:] == ["allowance: -100.00"]


def test_an_escalation_after_ten_business_days_is_too_late(october: Company) -> None:
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="no")
    with pytest.raises(DisputeError, match="more than 10 business days ago"):
        dispute_escalate(dispute_id=dispute.pk, actor="tom", now=day("2026-11-21"), text="late")


def test_the_window_after_issue_ends_with_its_tenth_business_day(october: Company) -> None:
    with pytest.raises(DisputeError, match="could be disputed until 2026-11-14T00:00:00"):
        october.disputes(INVOICE, 1, on="2026-11-14 00:00:00")
    assert october.disputes(INVOICE, 1, on="2026-11-13 23:59:59").status == "open"


def test_a_team_takes_its_dispute_back_and_may_open_it_again(october: Company) -> None:
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    dispute_withdraw(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="found it")
    assert october.state(INVOICE) == "issued"
    assert october.disputes(INVOICE, 1, amount="100.00").status == "open"


def test_a_rebill_is_disputed_like_an_invoice_and_a_credit_note_is_not(october: Company) -> None:
    october.credits(INVOICE, whole(rebill_price="9.5"))
    dispute = october.disputes("AI-INFRA-RB-2026-000001", 1, amount="100.00", on="2026-11-13")
    upheld_by_an_approver = upheld(october, dispute, approved_by="fin")  # 1,000.00 of the month were credited before
    assert upheld_by_an_approver == ["AI-INFRA-CN-2026-000002, 2026-11", "allowance: -100.00"]
    with pytest.raises(DisputeError, match="credits: dispute the invoice"):
        october.disputes("AI-INFRA-CN-2026-000001", 1, amount="100.00")
    assert (october.owes("nlp"), october.proven("2026-10")) == ("858.00", True)


def test_a_disputed_invoice_settles_after_the_decision(october: Company) -> None:
    dispute = october.disputes(INVOICE, 1, amount="100.00")
    with pytest.raises(SettlementError, match="is disputed"):
        document_settle(number=INVOICE, reference="FI-1", actor="sam", now=FRIDAY)
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="no")
    assert document_settle(number=INVOICE, reference="FI-1", actor="sam", now=FRIDAY)
