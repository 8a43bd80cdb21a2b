"""The period report shows that the disputes of a month follow from those of the month before, in number and amount."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from billing.closing.report import Check, build_report
from billing.corrections.services.disputes import dispute_escalate, dispute_reject, dispute_uphold, dispute_withdraw
from billing.invoices.selectors import period_of
from billing.runtime.translation import translated
from tests.factories import person
from tests.factories.disputes import FRIDAY, october, opened
from tests.stored_rows import rewrite

__all__ = ["october"]
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
NAME = "disputes before + opened - decided = open at the end"
DECEMBER = datetime(2026, 12, 2, tzinfo=UTC)


def check(month: str, now: datetime = DECEMBER) -> Check:
    (found,) = [one for one in build_report(period_of(month), now=now).checks if one.name == NAME]
    return found


def test_a_month_without_disputes_adds_up(october: str) -> None:
    assert check("2026-11") == Check(
        NAME, True,
        "0 (0.00) open before, 0 (0.00) opened or escalated, 0 (0.00) decided or withdrawn, 0 (0.00) open at the end",
    )  # fmt: skip


def test_what_is_open_at_the_end_is_open_before_the_next(october: str) -> None:
    """Opened in November: 100.00, 2.00 and 3.00; the second is withdrawn, the third rejected, escalated in December."""
    opened(october)
    second = opened(october, (2,), "2.00", code="price")
    dispute_withdraw(dispute_id=second.pk, actor="tom", now=FRIDAY, text="a slip")
    third = opened(october, (2,), "3.00", code="quantity")
    late = datetime(2026, 11, 30, 9, tzinfo=UTC)
    dispute_reject(dispute_id=third.pk, actor="sam", now=late, text="it is right")
    november = (
        "0 (0.00) open before, 3 (105.00) opened or escalated, 2 (5.00) decided or withdrawn, 1 (100.00) open at the end"
    )
    assert check("2026-11") == Check(NAME, True, november)
    dispute_escalate(dispute_id=third.pk, actor="tom", now=DECEMBER, text="it is not")
    assert check("2026-11") == Check(NAME, True, november)  # what came later changes nothing of it
    assert check("2026-12", datetime(2026, 12, 3, tzinfo=UTC)) == Check(
        NAME, True,
        "1 (100.00) open before, 1 (3.00) opened or escalated, 0 (0.00) decided or withdrawn, 2 (103.00) open at the end",
    )  # fmt: skip
    assert check("2026-10").detail.startswith("0 (0.00) open before, 0 (0.00) opened")


def test_a_month_that_runs_is_counted_to_now(october: str) -> None:
    first = opened(october)
    dispute_uphold(dispute_id=first.pk, actor="sam", now=datetime(2026, 11, 10, tzinfo=UTC), text="yes")
    assert check("2026-11", datetime(2026, 11, 9, tzinfo=UTC)).detail.endswith("1 (100.00) open at the end")
    assert check("2026-11", datetime(2026, 11, 11, tzinfo=UTC)).detail.endswith("0 (0.00) open at the end")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE corrections_dispute SET status = 'rejected', decided_at = now()", "DELETE FROM corrections_disputestep"],
)
def test_a_state_without_its_step_shows(october: str, statement: str) -> None:
    opened(october)
    rewrite(statement)
    found = build_report(period_of("2026-11"), now=DECEMBER)
    assert (check("2026-11").ok, found.closable) == (False, False)


def test_the_page_says_it_in_its_language(october: str, client: Client) -> None:
    opened(october)
    client.force_login(person("fin-2", "finance"))
    page: Any = client.get("/close/?month=2026-11").content.decode()
    assert NAME in page
    with translation.override("zh-hans"):
        assert "期末未决" in translated(check("2026-11").detail)
