"""A new budget in real Chromium, on a desk and on a phone, in both languages; price tables fold on the phone too."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from billing.budgets.models import Budget
from tests.browser.polling import wait_until_true
from tests.factories import apply, money
from tests.factories.browser import PHONE, picture, sign_in

pytestmark = pytest.mark.django_db(transaction=True)
DESK = {"width": 1280, "height": 900}
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
NOTHING_SCROLLS = "[...document.querySelectorAll('.scroll')].every(part => part.scrollWidth <= part.clientWidth)"


def test_finance_writes_a_plan_is_refused_and_makes_it(tmp_path: Path, page: Page) -> None:
    apply(tmp_path)
    sign_in(page, staff=True)
    page.get_by_role("link", name="Budgets").click()
    page.locator(".head").get_by_role("link", name="New budget").click()
    page.get_by_label("Team or group").select_option("nlp")
    page.get_by_label("Name", exact=True).fill("Llama training")
    page.get_by_label("Period", exact=True).select_option("plan")
    page.get_by_label("Amount 1", exact=True).fill("1,000.00")
    page.get_by_role("button", name="Add a row").click()
    page.get_by_label("Month 13").fill("2099-01")
    page.get_by_label("Amount 13").fill("ten")
    page.get_by_role("button", name="Create budget").click()
    expect(page.get_by_role("alert")).to_contain_text("2099-01 'ten': must be an amount from 0.01")
    for language in ("en", "zh-hans"):
        page.set_extra_http_headers({"accept-language": language})
        page.goto("/budgets/new/")
        for name, size in (("phone", PHONE), ("desk", DESK)):
            page.set_viewport_size(size)
            wait_until_true(page, FITS)
            picture(page, f"new-budget-{name}-{language}")
            with page.expect_navigation():
                page.locator("button.primary[type=submit]").last.click()
            expect(page.locator("#f-team_error")).to_be_visible()
            wait_until_true(page, FITS)
            picture(page, f"new-budget-refused-{name}-{language}")
    page.set_extra_http_headers({"accept-language": "en"})
    page.goto("/budgets/new/")
    page.get_by_label("Team or group").select_option("nlp")
    page.get_by_label("Period", exact=True).select_option("plan")
    page.get_by_label("Amount 1", exact=True).fill("1,000.00")
    page.get_by_role("button", name="Create budget").click()
    expect(page.get_by_role("heading", name="Alerts", exact=True)).to_be_visible()
    made = Budget.objects.get()
    assert page.url.endswith(f"/budgets/{made.pk}/")
    assert [row.amount for row in made.plan.all()] == [money("1000.00")]


def test_price_tables_fold_on_a_phone(tmp_path: Path, page: Page) -> None:
    apply(tmp_path)
    sign_in(page, staff=True)
    for language in ("en", "zh-hans"):
        page.set_extra_http_headers({"accept-language": language})
        page.set_viewport_size(PHONE)
        page.goto("/prices/")
        wait_until_true(page, NOTHING_SCROLLS)
        picture(page, f"prices-phone-{language}")
        page.set_viewport_size(DESK)
        picture(page, f"prices-desk-{language}")
