"""The search over everything, from any page, without a mouse: open, type, walk, go, close."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import AXE, faults
from tests.browser.polling import wait_until_all_there
from tests.factories.browser import PHONE, picture, scenario, signed_in
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)


def come(browser: Browser, site: str, who: str, **options: Any) -> Page:
    window = signed_in(browser, site, who, **options)
    window.goto("/budgets/")
    wait_until_all_there(window)
    return window


def test_a_lead_opens_it_walks_through_what_it_finds_and_goes_there(
    scenario: Scenario, browser: Browser, live_server: Any
) -> None:
    window = come(browser, live_server.url, "lead")
    dialog = window.get_by_role("dialog", name="Search")
    words = dialog.get_by_role("searchbox")
    window.keyboard.press("Control+k")
    expect(words).to_be_focused()
    window.keyboard.type("nlp")
    team = dialog.get_by_role("link", name="NLP Research nlp")
    expect(team).to_be_visible()
    expect(dialog).not_to_contain_text("Vision")
    picture(window, "search-everything")
    window.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("link").first).to_be_focused()
    window.keyboard.press("ArrowUp")
    expect(words).to_be_focused()
    while not team.evaluate("it => it === document.activeElement"):
        window.keyboard.press("ArrowDown")
    window.keyboard.press("Enter")
    expect(window).to_have_url("/teams/nlp/")
    window.context.close()


def test_enter_waits_for_what_is_being_looked_for_and_goes_to_the_first(
    scenario: Scenario, browser: Browser, live_server: Any
) -> None:
    window = come(browser, live_server.url, "finance")
    window.get_by_role("button", name="Search").click()
    window.keyboard.type(str(scenario.invoice.number), delay=0)
    window.keyboard.press("Enter")
    expect(window).to_have_url(f"/invoices/{scenario.invoice.pk}/")
    window.keyboard.press("Meta+k")
    window.keyboard.type("nothing-is-called-this")
    expect(window.get_by_text("Nothing is called that")).to_be_visible()
    window.keyboard.press("Enter")
    expect(window).to_have_url("/search/?q=nothing-is-called-this")
    window.context.close()


def test_escape_closes_it_and_leaves_the_focus_where_it_was(scenario: Scenario, browser: Browser, live_server: Any) -> None:
    window = come(browser, live_server.url, "finance")
    button = window.get_by_role("button", name="Search")
    button.focus()
    window.keyboard.press("Enter")
    expect(window.get_by_role("dialog")).to_be_visible()
    window.keyboard.press("Escape")
    expect(window.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()
    window.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nothing_hangs_over_on_a_desk_and_a_phone(
    scenario: Scenario, browser: Browser, live_server: Any, scheme: Any
) -> None:
    window = come(browser, live_server.url, "finance", color_scheme=scheme)
    window.keyboard.press("Control+k")
    window.keyboard.type("nlp")
    expect(window.get_by_role("link", name="NLP Research nlp")).to_be_visible()
    window.evaluate(AXE)
    assert faults(window, scheme, ()) == []
    picture(window, f"search-desk-{scheme}")
    window.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert faults(window, f"{scheme} phone", ()) == []
    assert window.evaluate("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(window, f"search-phone-{scheme}")
    window.context.close()
