"""Signing in with a second factor, in Chromium, in the order in which a person does it."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests import factories
from tests.factories.browser import open_menu
from tests.factories.identity import code_for

pytestmark = pytest.mark.django_db(transaction=True)


def test_somebody_adds_a_second_factor_and_signs_in_with_it(
    browser: Browser,
    live_server: Any,
    tmp_path: Any,
) -> None:
    factories.apply(tmp_path)
    factories.person("ann", "finance", password="an abacus has beads")
    context = browser.new_context(base_url=live_server.url, viewport={"width": 390, "height": 844})
    page = context.new_page()

    def sign_in() -> None:
        page.goto("/login/")
        page.get_by_label("User name").fill("ann")
        page.get_by_label("Password").fill("an abacus has beads")
        page.get_by_role("button", name="Sign in").click()

    sign_in()
    open_menu(page)
    page.get_by_role("link", name="Second factor").click()
    page.get_by_role("link", name="Activate").click()
    page.get_by_label("Password").fill("an abacus has beads")
    page.get_by_role("button", name="Confirm").click()
    page.screenshot(path=str(tmp_path / "activate.png"), full_page=True)
    secret = page.get_by_label("Authenticator secret").input_value()
    code = code_for(secret)
    page.get_by_label("Authenticator code").fill(code)
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_label("Unused codes")).to_have_value(re.compile(r"^(\d{8}\s*){10}$"))
    page.screenshot(path=str(tmp_path / "codes.png"), full_page=True)
    context.clear_cookies()
    sign_in()
    expect(page.locator("main")).to_contain_text("two-factor")
    expect(page.get_by_role("button", name="Sign In")).to_have_class("primary")
    expect(page.get_by_role("button", name="Cancel")).not_to_have_class("primary")
    expect(page.locator("button.primary")).to_have_count(1)
    page.screenshot(path=str(tmp_path / "ask.png"), full_page=True)
    page.goto("/close/")
    expect(page.get_by_role("button", name="Sign In")).to_be_visible()  # still on the way in
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    context.close()
