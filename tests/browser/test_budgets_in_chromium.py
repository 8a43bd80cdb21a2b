"""Budgets and anomalies in real Chromium: what a team's lead does with them, on a desk and on a phone."""


import pytest
from playwright.sync_api import Page, expect

from billing.budgets.models import Budget
from tests.browser.polling import wait_until_true
from tests.factories.browser import PHONE, picture, sign_in
from tests.factories.budgets import past

__all__ = ["past"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lead_sees_the_forecast_and_chooses_the_recipients(past: Budget, page: Page) -> None:
    sign_in(page, staff=False)
    page.get_by_role("link", name="Budgets").click()
    expect(page.get_by_role("heading", name="Budgets")).to_be_visible()
    picture(page, "budgets")
    page.get_by_role("link", name="NLP everything").click()
    expect(page.locator("main")).to_contain_text("Spend to date")
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
    page.get_by_role("button", name="Expected", exact=True).click()
    expect(page.locator("main")).to_contain_text("release week")
    page.set_viewport_size(PHONE)
    wait_until_true(page, f"document.documentElement.scrollWidth <= {PHONE['width']}")
    picture(page, "anomalies-phone")
