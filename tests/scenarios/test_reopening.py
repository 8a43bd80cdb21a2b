"""A closed month of which nothing was issued is opened again by two persons, and closed anew with all that was learned."""

import pytest

from billing.approvals.limits import AuthorityError
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.reopening import ReopeningError, reopening_approve
from billing.closing.services.waivers import exception_waive
from billing.corrections.services.retroactive import retroactive_acknowledge, retroactive_propose
from billing.invoices.services.invoices import ApprovalError, invoice_rebuild
from billing.invoices.services.periods import PeriodError, period_open
from billing.rating.selectors import closed_until
from tests.factories.closing import Died
from tests.scenarios.company import Company, day, morning_after, price_list

NINTH = "2026-10-09 08:00"


@pytest.fixture(autouse=True)
def october(company: Company) -> None:
    """nlp used one device for ten hours at 10: 100.00."""
    company.company_rule(reopening="two-persons")
    company.uses("nlp-train", gpus=1, since="2026-10-10 08:00", until="2026-10-10 18:00")


def uses_an_hour(company: Company) -> None:
    company.uses("nlp-train", gpus=1, since=NINTH, until="2026-10-09 09:00")


def test_a_reopened_month_bills_what_was_learned_since_as_its_own_usage(company: Company) -> None:
    company.closes("2026-10")
    assert company.invoice("nlp", "2026-10")[-1] == "total 100.00"
    assert closed_until() == day("2026-11-01")
    company.uses("nlp-train", gpus=2, since=NINTH, until="2026-10-09 11:00")
    company.reopens("2026-10")
    assert (company.status("2026-10"), closed_until()) == ("open", None)
    company.writes(output=5, on="2026-10-15")
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10") == [
        "16 GPU-Hours of NVIDIA-H800 at 10.0000: 160.00",
        "5 1M Tokens of output of llama-3-8b at 8.0000: 40.00",
        "total 200.00",
    ]
    assert company.number("nlp", "2026-10") == "AI-INFRA-2026-000001"
    assert company.proven("2026-10")
    assert company.what_blocks("2026-10") == []


def test_late_usage_of_earlier_months_is_billed_once_by_the_close_that_stays(company: Company) -> None:
    company.bills("2026-10")
    company.uses("nlp-train", gpus=1, since="2026-11-10 08:00", until="2026-11-10 09:00")
    uses_an_hour(company)
    company.closes("2026-11")
    assert company.invoice("nlp", "2026-11")[-1] == "total 20.00"
    uses_an_hour(company)
    company.reopens("2026-11")
    company.bills("2026-11")
    assert company.invoice("nlp", "2026-11") == [
        "1 GPU-Hours of NVIDIA-H800 at 10.0000: 10.00",
        "2 GPU-Hours of NVIDIA-H800 at 10.0000: 20.00 (used in 2026-10)",
        "total 30.00",
    ]
    assert (company.number("nlp", "2026-11"), company.owes("nlp")) == ("AI-INFRA-2026-000002", "130.00")
    uses_an_hour(company)
    company.bills("2026-12")
    assert company.invoice("nlp", "2026-12") == [
        "1 GPU-Hours of NVIDIA-H800 at 10.0000: 10.00 (used in 2026-10)", "total 10.00",
    ]  # fmt: skip
    assert company.proven("2026-10", "2026-11", "2026-12")


def test_a_pod_may_have_ended_within_a_month_that_is_open_again(company: Company) -> None:
    """Seen for 30 hours, it had ended after 20; of late usage 2 of 6 hours are left, which only a withdrawn close billed."""
    october, november = {"since": "2026-10-20 00:00", "gpus": 1}, {"since": "2026-11-10 00:00", "gpus": 1}
    company.report(7, "cv", until=None, seen="2026-10-21 06:00", **october)
    company.waives("2026-10", "metering_gap", "hq-1/cv")
    company.closes("2026-10")
    company.reopens("2026-10")
    company.report(7, "cv", until="2026-10-20 20:00", **october)
    assert company.what_blocks("2026-10") == []
    company.bills("2026-10")
    assert company.owes("cv") == "200.00"
    late = {"since": "2026-10-25 00:00", "gpus": 1}
    company.report(8, "cv", until=None, seen="2026-10-25 06:00", **late)
    company.uses("cv", until="2026-11-10 10:00", **november)
    exception_waive(
        period=period_open(month="2026-11"), kind="metering_gap", subject="hq-1/cv", reason="seen", actor="sam",
        now=morning_after("2026-11"),
    )  # fmt: skip
    company.closes("2026-11")
    company.reopens("2026-11")
    company.report(8, "cv", until="2026-10-25 02:00", **late)
    company.bills("2026-11")
    assert company.owes("cv") == "320.00"
    assert company.proven("2026-10", "2026-11")


def test_a_price_may_be_mended_while_the_month_is_open_again(company: Company) -> None:
    company.closes("2026-10")
    company.reopens("2026-10")
    company.publishes(price_list("mid", "2026-10-10 13:00", gpu_hour="12.0000"))
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10") == [
        "5 GPU-Hours of NVIDIA-H800 at 10.0000: 50.00", "5 GPU-Hours of NVIDIA-H800 at 12.0000: 60.00", "total 110.00",
    ]  # fmt: skip


def test_a_month_may_be_reopened_more_than_once(company: Company) -> None:
    for _ in range(3):
        company.closes("2026-10")
        company.reopens("2026-10")
    company.bills("2026-10")
    assert (company.number("nlp", "2026-10"), company.owes("nlp")) == ("AI-INFRA-2026-000001", "100.00")


def test_a_team_whose_usage_moved_away_leaves_no_draft_that_has_to_be_built_again(company: Company) -> None:
    company.uses("cv", gpus=1, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.closes("2026-10")
    assert (company.invoice("cv", "2026-10")[-1], company.invoice("nlp", "2026-10")[-1]) == ("total 100.00", "total 100.00")
    company.reopens("2026-10")
    company.gives("cv", "nlp", "2026-10-01")
    company.bills("2026-10")
    assert company.invoice("nlp", "2026-10")[-1] == "total 200.00"
    with pytest.raises(ApprovalError, match="has no voided draft of 2026-10"):
        invoice_rebuild(month="2026-10", team="cv", actor="sam")
    assert company.posts("2026-10") == {"AI-INFRA-2026-000001": "200.00"}


def test_only_the_last_close_is_taken_back(company: Company) -> None:
    company.closes("2026-10")
    company.closes("2026-11")
    with pytest.raises(ReopeningError, match="a later month was closed after 2026-10"):
        company.asks_to_reopen("2026-10")


def test_a_month_that_a_note_has_corrected_is_not_billed_again(company: Company) -> None:
    """The platform's own 10 hours of October were cv's: a rebill of 100.00 comes out before any invoice of October."""
    company.uses("serving", gpus=1, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.closes("2026-10")
    change = retroactive_propose(
        kind="namespace", name="not ours", fact={"scope": "hq-1", "name": "serving", "team": "cv"}, reason="agreed",
        valid_from=day("2026-10-01"), valid_until=None, evidence="minutes", actor="sam", now=day("2026-11-02"),
    )  # fmt: skip
    retroactive_acknowledge(change_id=change.pk, team="cv", actor="lea", now=day("2026-11-02"))
    company.approves_change(change, on="2026-11-02")
    assert company.notes() == ["AI-INFRA-RB-2026-000001 cv 100.00"]
    with pytest.raises(ReopeningError, match="notes correct 2026-10 already and never change"):
        company.reopens("2026-10")
    company.issues("2026-10")
    company.bills("2026-11")
    assert (company.owes("nlp"), company.owes("cv")) == ("100.00", "100.00")
    assert company.proven("2026-10", "2026-11")


def test_no_month_is_closed_behind_a_close_that_may_be_taken_back(company: Company) -> None:
    """An hour of nobody's comes in as October is cut off, and who closes is gone: the next run takes the cut-off back, and
    the hour that came late is in October's bill, not in November's too.
    """

    def die(stage: str, _done: int, _all: int) -> None:
        if stage == "cut_off":
            company.uses("nobodys", gpus=1, since=NINTH, until="2026-10-09 09:00")
        if stage == "rate" and company.reported > 1:
            raise Died

    with pytest.raises(Died):
        period_close(month="2026-10", actor="ops", now=morning_after("2026-10"), report_progress=die)
    uses_an_hour(company)
    with pytest.raises(PeriodError, match=r"2026-10 is being closed: finish `manage\.py period_close 2026-10` first"):
        company.closes("2026-11")
    with pytest.raises(CloseRefusedError):
        company.closes("2026-10")
    company.gives("nobodys", "cv", "2026-01-01")
    company.bills("2026-10")
    company.bills("2026-11")
    assert (company.owes("nlp"), company.owes("cv")) == ("110.00", "10.00")
    assert company.proven("2026-10")


def test_who_asks_never_approves_nor_does_who_may_not(company: Company) -> None:
    company.closes("2026-10")
    for actor in ("viv", "tom", "fin", "nobody"):
        with pytest.raises(AuthorityError, match="with the right close"):
            company.asks_to_reopen("2026-10", by=actor)
    company.employs("both", "finance", "approver")
    asked = company.asks_to_reopen("2026-10", by="both")
    for actor, refused in (("both", "somebody else must approve"), ("sam", "with the right approve"),
                           ("viv", "with the right approve"), ("nobody", "with the right approve")):  # fmt: skip
        with pytest.raises(AuthorityError, match=refused):
            reopening_approve(reopening_id=asked, actor=actor, now=day("2026-11-02"))
    assert company.status("2026-10") == "closed"
