"""A large month after a close or a reopening is not shown as it was before, until the scheduler has made its sums anew."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict

from billing.closing.services.closing import period_close
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.closing.services.snapshots import month_assess
from billing.explorer.selectors import Explored, Explorer
from billing.explorer.services import cubes_refresh
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in
from tests.factories.pages import text_of
from tests.factories.usage import hold

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MONTH = "2026-10"
ASSESSED = datetime(2026, 11, 2, 3, 4, tzinfo=UTC)
CLOSED = ASSESSED + timedelta(hours=1)
BEING_MADE = "the sums are being made and are in no figure of this page"


@pytest.fixture
def kept(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """nlp and cv used 25.00 and 20.00 when October was assessed and summed; 10.00 of cv's came after that."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: CLOSED)
    settings.CACHE_STATEMENTS_ABOVE_LINES = 2
    apply(tmp_path, billing={**SET_UP["billing"], "reopening": "two-persons"})
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:30:00Z", quantity=1),
        hold(2, "2026-10-10T02:00:00Z", "2026-10-10T04:00:00Z", quantity=1, namespace="cv"),
    )  # fmt: skip
    month_assess(month=MONTH, now=ASSESSED)
    cubes_refresh()
    ingest_allocations(hold(3, "2026-10-11T02:00:00Z", "2026-10-11T03:00:00Z", quantity=1, namespace="cv"))
    for name, role in (("fin", "finance"), ("ada", "approver")):
        person(name, role)


def reopen() -> None:
    request = reopening_request(month=MONTH, reason="site B reported late", actor="fin", now=CLOSED)
    reopening_approve(reopening_id=request.pk, actor="ada", now=CLOSED)


def page(path: str) -> str:
    return " ".join(text_of(signed_in("fin"), path).split())


def test_an_open_month_is_as_it_was_assessed_and_says_so(kept: None) -> None:
    for path in ("overview", "spending", "explorer"):
        text = page(f"/{path}/?month={MONTH}")
        assert ("45.00" in text, "55.00" in text, "Assessed 2 Nov 11:04." in text) == (True, False, True), path
    for path in ("recovery", "late", "teams/cv"):
        assert "Assessed 2 Nov 11:04." in page(f"/{path}/?month={MONTH}"), path


def test_a_closed_month_is_its_invoices_or_is_named_as_being_summed(kept: None) -> None:
    period_close(month=MONTH, actor="fin", now=CLOSED)

    for path in (f"/overview/?month={MONTH}", f"/spending/?month={MONTH}"):
        text = page(path)
        assert ("55.00" in text, "45.00" in text, "Assessed" in text) == (True, False, False), path
    explorer = page(f"/explorer/?month={MONTH}")
    assert (BEING_MADE in explorer, "45.00" in explorer) == (True, False)
    assert "Everything on this page was found at 2026-11-02 11:04" in page(f"/close/?month={MONTH}")
    cubes_refresh()
    explorer = page(f"/explorer/?month={MONTH}")
    assert (BEING_MADE in explorer, "55.00" in explorer) == (False, True)


@pytest.mark.parametrize("looked", [False, True])
def test_a_month_that_was_opened_again_is_not_what_its_close_was(kept: None, looked: bool) -> None:
    """Whether or not a page has rated it in between, whose rating is kept: cv used 30.00 more since the close."""
    period_close(month=MONTH, actor="fin", now=CLOSED)
    cubes_refresh()
    reopen()
    ingest_allocations(hold(4, "2026-10-12T02:00:00Z", "2026-10-12T05:00:00Z", quantity=1, namespace="cv"))
    if looked:
        assert "85.00" in page(f"/overview/?month={MONTH}")

    explorer = page(f"/explorer/?month={MONTH}")
    assert ("55.00" in explorer, BEING_MADE in explorer, "85.00" in explorer) == (False, looked, not looked)
    cubes_refresh()
    explorer = page(f"/explorer/?month={MONTH}")
    assert ("85.00" in explorer, "Preview" in explorer) == (True, True)


def test_late_usage_that_a_close_has_just_billed_is_in_no_sum_of_before(
    kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """October is closed with 55.00; 30.00 of it come late and are billed with November, whose other usage is 40.00."""
    period_close(month=MONTH, actor="fin", now=CLOSED)
    now = datetime(2026, 12, 3, 4, tzinfo=UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    ingest_allocations(
        hold(5, "2026-10-20T00:00:00Z", "2026-10-20T03:00:00Z", quantity=1),
        hold(6, "2026-11-12T00:00:00Z", "2026-11-12T04:00:00Z", quantity=1),
        hold(7, "2026-12-01T00:00:00Z", "2026-12-01T01:00:00Z", quantity=1),
        hold(8, "2026-12-01T00:00:00Z", "2026-12-01T01:00:00Z", quantity=1, namespace="cv"), now=now,
    )  # fmt: skip
    for month in ("2026-11", "2026-12"):
        month_assess(month=month, now=now)
    cubes_refresh()

    def total() -> Explored:
        return Explorer(frozenset({"nlp", "cv"}), now, "Asia/Shanghai").answer(
            QueryDict("from=2026-10-01&to=2026-12-31&step=month")
        )

    assert total().total.total == Decimal("145.00")
    period_close(month="2026-11", actor="fin", now=now)
    assert (total().missing, total().total.total) == (["2026-11", "2026-12"], Decimal("55.00"))
    cubes_refresh()
    assert (total().missing, total().total.total) == ([], Decimal("145.00"))
