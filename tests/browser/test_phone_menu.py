"""On a phone the menu is behind one button, and nothing moves when it opens."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import AXE, faults
from tests.browser.polling import wait_until_all_there
from tests.factories.browser import CUT_OFF, PHONE, picture, scenario, signed_in
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)
PLACES = """() => [...document.querySelectorAll("main *, .brand, .menu-button")].map((one) => {
    const {x, y, width, height} = one.getBoundingClientRect(); return [x, y, width, height].join(" "); })"""


@pytest.fixture
def phone(scenario: Scenario, browser: Browser, live_server: Any) -> Page:
    window = signed_in(browser, live_server.url, "finance")
    window.set_viewport_size(PHONE)  # type: ignore[arg-type]
    window.goto("/invoices/")
    wait_until_all_there(window)
    return window


def test_the_menu_is_behind_one_button_and_nothing_moves_when_it_opens(phone: Page) -> None:
    button, menu = phone.get_by_role("button", name="Menu"), phone.locator("#side-menu")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(menu).to_be_hidden()
    before = phone.evaluate(PLACES)
    picture(phone, "menu-closed")
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    assert phone.evaluate(PLACES) == before
    picture(phone, "menu-open")
    for link in phone.locator(".menu a").all():
        link.scroll_into_view_if_needed()
        expect(link).to_be_in_viewport(ratio=1)
    expect(phone.get_by_role("button", name="Sign out")).to_be_visible()
    assert phone.evaluate(CUT_OFF) == []
    phone.get_by_role("link", name="Budgets").click()
    expect(phone).to_have_url("/budgets/")
    expect(menu).to_be_hidden()
    phone.context.close()


def test_the_menu_is_walked_without_a_mouse(phone: Page) -> None:
    button, menu = phone.get_by_role("button", name="Menu"), phone.locator("#side-menu")
    for name in ("Skip to content", "Suanpan"):
        phone.keyboard.press("Tab")
        expect(phone.get_by_role("link", name=name)).to_be_focused()
    while not button.evaluate("it => it === document.activeElement"):
        phone.keyboard.press("Tab")
        assert phone.evaluate("!document.querySelector('main').contains(document.activeElement)")
    phone.keyboard.press("Enter")
    expect(menu).to_be_visible()
    phone.keyboard.press("Tab")
    expect(phone.get_by_role("link", name="Cost explorer")).to_be_focused()
    phone.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()
    phone.keyboard.press("Tab")
    assert phone.evaluate("document.querySelector('main').contains(document.activeElement)")
    phone.keyboard.press("Shift+Tab")
    phone.keyboard.press("Space")
    phone.get_by_role("button", name="Sign out").focus()
    phone.keyboard.press("Tab")
    expect(menu).to_be_hidden()  # who leaves it closes it
    phone.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_open_menu(phone: Page, scheme: Any) -> None:
    phone.emulate_media(color_scheme=scheme)
    phone.get_by_role("button", name="Menu").click()
    phone.evaluate(AXE)
    assert faults(phone, f"menu {scheme}", ()) == []
    picture(phone, f"menu-open-{scheme}")
    phone.context.close()


def test_without_a_script_the_menu_is_open(scenario: Scenario, browser: Browser, live_server: Any) -> None:
    window = signed_in(browser, live_server.url, "finance", java_script_enabled=False)
    window.set_viewport_size(PHONE)  # type: ignore[arg-type]
    window.goto("/invoices/")
    expect(window.get_by_role("link", name="Budgets")).to_be_visible()
    expect(window.get_by_role("button", name="Menu")).to_be_hidden()
    window.context.close()
