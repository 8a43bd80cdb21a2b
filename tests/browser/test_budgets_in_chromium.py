"""Budgets and anomalies in real Chromium: what a team's lead does with them, on a desk and on a phone."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from billing.budgets.models import Budget, Channel
from billing.budgets.services import budgets_evaluate, days_store, findings_update, forecasts_update, standings_refresh
from tests.browser.polling import wait_until_true
from tests.browser.test_portal_in_chromium import browser, page, sign_in
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations

__all__ = ["browser", "page"]
pytestmark = pytest.mark.django_db(transaction=True)
SINCE = "2024-01-01T00:00:00+08:00"
PHONE = {"width": 390, "height": 844}


def picture(page: Page, name: str) -> None:
    """Kept where SUANPAN_SCREENSHOTS says, for people to look at."""
    folder = os.environ.get("SUANPAN_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.fixture
def past(tmp_path: Path) -> Budget:
    """Four months of working days and weekends up to now, and yesterday ten times as much."""
    ownership = [{**row, "valid_from": SINCE} for row in SET_UP["ownership"]]
    price = {**SET_UP["price_versions"][0], "valid_from": SINCE}
    ladder = [{"at": "80", "action": "rate_limit", "tokens_per_minute": "200000", "floor": "20000"},
              {"at": "100", "action": "cap"}]  # fmt: skip
    budgets = [{"team": "nlp", "amount": "40000.00", "owner": "Ann Lee", "name": "NLP everything", "ladder": ladder}]
    apply(tmp_path, ownership=ownership, price_versions=[price], budgets=budgets)
    now = timezone.now()
    today = now.astimezone(ZoneInfo("Asia/Shanghai")).date()
    records = [_day(today - timedelta(days=back), 80 if back == 1 else 0) for back in range(1, 130)]
    ingest_allocations(*records, now=now)
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    findings_update(now=now)
    found = Budget.objects.get()
    found.channels.add(Channel.objects.create(name="ops-room", url="json://127.0.0.1/secret"))
    budgets_evaluate(now=now)
    return found


def _day(day: Any, extra: int) -> dict[str, Any]:
    start = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("Asia/Shanghai"))
    end = start + timedelta(hours=12)
    quantity = (3 if day.weekday() >= 5 else 9 + day.day % 3) + extra
    return allocation_record(
        day.toordinal(), quantity=quantity, started_at=start.isoformat(), ended_at=end.isoformat(),
        observed_until=end.isoformat(),
    )  # fmt: skip


def test_a_lead_sees_where_the_month_ends_and_says_who_is_told(past: Budget, page: Page) -> None:
    sign_in(page, staff=False)
    page.get_by_role("link", name="Budgets").click()
    expect(page.get_by_role("heading", name="Budgets")).to_be_visible()
    picture(page, "budgets")
    page.get_by_role("link", name="NLP everything").click()
    expect(page.locator("main")).to_contain_text("Course of the period")
    expect(page.locator("main")).not_to_contain_text("secret")
    page.get_by_label("One mail address or channel per line").fill("ops-room\nann@example.com")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("One mail address or channel per line")).to_have_value("ann@example.com\nops-room")
    page.get_by_text("Figures by day").click()
    picture(page, "budget")
    page.set_viewport_size(PHONE)
    wait_until_true(page, f"document.documentElement.scrollWidth <= {PHONE['width']}")  # once it is laid out
    picture(page, "budget-phone")


def test_a_lead_answers_an_unusual_day(past: Budget, page: Page) -> None:
    sign_in(page, staff=False)
    page.get_by_role("link", name="Anomalies").click()
    expect(page.locator("main")).to_contain_text("NVIDIA-H800")
    picture(page, "anomalies")
    page.get_by_placeholder("Note").fill("release week")
    page.get_by_role("button", name="Was planned").click()
    expect(page.locator("main")).to_contain_text("release week")
    page.set_viewport_size(PHONE)
    wait_until_true(page, f"document.documentElement.scrollWidth <= {PHONE['width']}")
    picture(page, "anomalies-phone")
