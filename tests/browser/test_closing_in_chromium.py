"""Closing a month in real Chromium: can we close, close, review, approve by somebody else, issue. In both languages, on a
desk and on a phone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from billing.closing.services.operations import operation_run, operations_pending
from billing.invoices.models import BillingPeriod, Invoice
from billing.usage.services.watermarks import watch_notes_add, watermark_advance
from metering.intervals import Interval
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.browser import signed_in
from tests.factories.browser_tasks import Person, come, language, size

__all__ = ["come", "language", "size"]
pytestmark = pytest.mark.django_db(transaction=True)


def a_worker_does_what_waits() -> None:
    """As the worker would: its own tests are elsewhere."""
    for operation in operations_pending():
        operation_run(operation_id=operation)


def test_a_close_that_ends_while_somebody_types_takes_nothing_away(
    browser: Browser, live_server: Any, scenario: None
) -> None:
    page = signed_in(browser, live_server.url, "finance")
    page.goto("/close/?month=2026-10")
    page.locator("summary").filter(has_text="Close…").first.click()
    page.locator("form:has(input[value=close]) button").click()
    expect(page.locator("main")).to_contain_text("waiting for a worker")
    page.locator("summary").filter(has_text="Waive…").first.click()
    reason = page.get_by_role("textbox", name="Reason").first
    reason.fill("the rack was sw")
    a_worker_does_what_waits()  # the close is refused: an hour was not watched
    now = page.get_by_role("link", name="Show the page as it is now")
    expect(now).to_be_visible()
    expect(reason).to_have_value("the rack was sw")
    now.click()
    expect(now).to_have_count(0)
    expect(page.locator(".pill.refused").first).to_be_visible()
    page.context.close()


@pytest.fixture
def scenario(tmp_path: Path) -> None:
    """October has ended and is not closed; drafts need a second person; an hour was not watched."""
    apply(tmp_path, billing={**SET_UP["billing"], "review": "four-eyes"})
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=1))
    ingest_tokens(token_record(1, input_tokens=2_000_000, output_tokens=500_000))
    watermark_advance(agent="agent-1", cluster="hq-1", watermark=timezone.now() + timedelta(days=1))
    hour = Interval(datetime(2026, 10, 20, 8, tzinfo=UTC), datetime(2026, 10, 20, 9, tzinfo=UTC))
    watch_notes_add(agent="agent-1", cluster="hq-1", kind="unwatched", stretches=[hour])
    for name in ("finance", "approver"):
        person(name, name)


def test_finance_closes_the_month_another_approves_and_finance_issues(come: Any) -> None:
    finance: Person = come("finance")
    finance.page.goto("/close/?month=2026-10")
    finance.reads("Metering gap")
    finance.station("cannot-close")
    finance.unfold("Waive…")
    finance.page.get_by_role("textbox", name=finance.words("Reason")).fill("the rack was switched off")
    finance.page.locator("input[name=until]").fill((timezone.now() + timedelta(days=7)).date().isoformat())
    finance.press("Waive")
    finance.reads("Yes. Everything adds up and nothing blocks the close.")
    finance.unfold("Close…")
    finance.station("close")
    finance.page.locator("form:has(input[value=close]) button").click()
    finance.reads("waiting for a worker")
    finance.station("closing")
    a_worker_does_what_waits()
    finance.reads("Review the drafts")  # the page asks and shows it by itself
    finance.station("closed")

    approver: Person = come("approver")
    approver.page.goto("/close/?month=2026-10")
    approver.follow("Review the drafts")
    approver.station("drafts")
    approver.page.get_by_role("link", name=approver.words("Draft")).first.click()
    approver.reads("the number is assigned at issue")
    approver.station("draft-reviewed")
    approver.page.goto("/close/?month=2026-10")
    approver.unfold("Approve…")
    approver.station("approve")
    approver.page.locator("form[action$='/approve/'] button").click()
    expect(approver.page.get_by_role("link", name=approver.words("Review the drafts"))).to_have_count(0)
    assert set(Invoice.objects.values_list("status", "approved_by")) == {("approved", "approver")}

    finance.page.goto("/close/?month=2026-10")
    finance.unfold("Issue…")
    finance.page.locator("form:has(input[value=issue]) button").click()
    finance.reads("waiting for a worker")
    a_worker_does_what_waits()
    expect(finance.page.locator(".pill.pending")).to_have_count(0)
    finance.station("issued")
    finance.follow("Invoices")
    finance.reads("AI-INFRA-2026-000002")
    assert BillingPeriod.objects.get().status == "closed"
    assert Invoice.objects.filter(status="issued").count() == 2
