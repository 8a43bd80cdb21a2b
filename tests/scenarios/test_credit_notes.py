"""An invoice was wrong: it stays as it is, and a credit note, perhaps with a rebill, puts the account right."""

import pytest

from billing.corrections.note_lines import NoteError
from billing.corrections.services.corrections import Wanted
from billing.corrections.services.sla import LostWork, sla_credit_draft
from billing.invoices.models import Correction
from tests.factories import money
from tests.scenarios.company import Company, day, part, price_list, whole

INVOICE = "AI-INFRA-2026-000001"


@pytest.fixture
def october(company: Company) -> Company:
    """nlp was billed 100 GPU-hours at 10 for October: 1,000.00."""
    company.uses("nlp-train", gpus=10, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.bills("2026-10")
    return company


def test_a_price_that_should_have_been_9_50_is_reversed_and_billed_again(october: Company) -> None:
    """F07: reversal -1000.00, rebill 950.00, net -50.00."""
    assert october.credits(INVOICE, whole(rebill_price="9.5")) == [
        "AI-INFRA-CN-2026-000001, 2026-11",
        "reversal: -100 GPU-Hours of NVIDIA-H800 at 10.0000: -1000.00",
        "AI-INFRA-RB-2026-000001, 2026-11",
        "rebill: 100 GPU-Hours of NVIDIA-H800 at 9.5000: 950.00",
    ]
    assert october.owes("nlp") == "950.00"


def test_hours_that_were_wrong_are_credited_in_full_and_replaced(october: Company) -> None:
    """F15: credit note -1000.00, replacement 950.00, account 950.00."""
    assert october.credits(INVOICE, whole(rebill_quantity="95"), because="quantity") == [
        "AI-INFRA-CN-2026-000001, 2026-11",
        "reversal: -100 GPU-Hours of NVIDIA-H800 at 10.0000: -1000.00",
        "AI-INFRA-RB-2026-000001, 2026-11",
        "rebill: 95 GPU-Hours of NVIDIA-H800 at 10.0000: 950.00",
    ]
    assert october.owes("nlp") == "950.00"


def test_the_difference_alone_may_be_credited(october: Company) -> None:
    assert october.credits(INVOICE, part("50.00")) == ["AI-INFRA-CN-2026-000001, 2026-11", "allowance: -50.00"]
    assert october.owes("nlp") == "950.00"


def test_a_rebill_can_be_credited_as_an_invoice_can(october: Company) -> None:
    october.credits(INVOICE, whole(rebill_price="9.5"))
    assert october.credits("AI-INFRA-RB-2026-000001", whole(), because="duplicate") == [
        "AI-INFRA-CN-2026-000002, 2026-11", "reversal: -100 GPU-Hours of NVIDIA-H800 at 9.5000: -950.00",
    ]  # fmt: skip
    assert october.credits_of("AI-INFRA-CN-2026-000002") == (INVOICE, "AI-INFRA-RB-2026-000001", 1)
    assert october.owes("nlp") == "0.00"


def test_what_was_credited_before_is_kept_when_the_line_is_billed_again(october: Company) -> None:
    """640.00 for a fault of the platform; then the price falls to 9.5: the team owes 950.00 - 640.00."""
    october.credits(INVOICE, part("640.00"), because="sla", approved_by="lea")
    assert october.credits(INVOICE, whole(rebill_price="9.5")) == [
        "AI-INFRA-CN-2026-000002, 2026-11",
        "reversal: -100 GPU-Hours of NVIDIA-H800 at 10.0000: -1000.00",
        "withdrawal: 640.00",
        "AI-INFRA-RB-2026-000001, 2026-11",
        "rebill: 100 GPU-Hours of NVIDIA-H800 at 9.5000: 950.00",
        "allowance: -640.00",
    ]
    assert october.owes("nlp") == "310.00"


def test_credits_never_exceed_what_was_charged(october: Company) -> None:
    october.credits(INVOICE, part("999.99"))
    with pytest.raises(NoteError, match=r"0\.02 is not between 0\.01 and the 0\.01 left"):
        october.drafts_credit(INVOICE, part("0.02"))
    october.credits(INVOICE, part("0.01"))
    with pytest.raises(NoteError, match="credited already"):
        october.drafts_credit(INVOICE, whole())
    assert october.owes("nlp") == "0.00"


def lost(gpus: int) -> Correction:
    """So many devices lost 3.5 hours of work; a checkpoint is written every hour."""
    wanted = Wanted("sla", "the node failed", "INC-17", "sam", day("2026-11-12"))
    work = LostWork(gpus, money("3.5"), money("1"))
    return sla_credit_draft(number=INVOICE, position=1, lost=work, wanted=wanted)


def test_a_line_of_no_amount_is_billed_again_once(company: Company) -> None:
    """Ten hours were free and should have been 5.0000: 50.00, however often somebody asks."""
    company.publishes(price_list("free", "2026-10-01", gpu_hour="0.0000"))
    company.uses("cv", gpus=1, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.bills("2026-10")
    number = company.number("cv", "2026-10")
    with pytest.raises(NoteError, match=f"lines 1 of {number}: nothing was charged there, and no note of 0.00 is issued"):
        company.drafts_credit(number, whole(1))
    assert company.credits(number, whole(1, rebill_price="5")) == [
        "AI-INFRA-CN-2026-000001, 2026-11", "reversal: -10 GPU-Hours of NVIDIA-H800 at 0.0000: 0.00",
        "AI-INFRA-RB-2026-000001, 2026-11", "rebill: 10 GPU-Hours of NVIDIA-H800 at 5.0000: 50.00",
    ]  # fmt: skip
    for again in (whole(1, rebill_price="5"), whole(1)):
        with pytest.raises(NoteError, match=r"its 0\.00 are credited already"):
            company.drafts_credit(number, again)
    assert (company.owes("cv"), company.proven("2026-10")) == ("50.00", True)


def test_lost_work_is_credited_up_to_one_checkpoint_interval(october: Company) -> None:
    """F18: 64 GPUs lose 3.5 h, one interval is 1 h, the price is 10: -640.00."""
    assert october.approves(lost(64), by="lea") == [
        "AI-INFRA-CN-2026-000001, 2026-11", "allowance: -64 GPU-Hours of NVIDIA-H800 at 10.0000: -640.00",
    ]  # fmt: skip
    with pytest.raises(NoteError, match=r"not between 0\.01 and the 360\.00 left"):
        lost(37)
    assert lost(36).amount == money("360.00")


def test_a_note_that_is_approved_late_stands_in_the_month_that_is_open_then(october: Company) -> None:
    drafted = october.drafts_credit(INVOICE, part("1.00"))
    october.bills("2026-11")
    assert october.approves(drafted, by="lea", on="2026-12-02") == ["AI-INFRA-CN-2026-000001, 2026-12", "allowance: -1.00"]
