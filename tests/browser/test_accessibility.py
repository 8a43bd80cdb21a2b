"""Pages of the portal for people who use no mouse: the keyboard reaches everything and shows where it is."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from billing.usage.models import QuarantinedRecord
from tests.browser.polling import wait_until_all_there
from tests.factories.browser import SIZES, scenario, signed_in
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)


def walked_by_keyboard(window: Page) -> None:
    """Tab through the page: each stop shows its focus, and nothing that can be seen and used is left out."""
    reached = []
    for _ in range(300):
        window.keyboard.press("Tab")
        at = window.evaluate(
            """() => { const it = document.activeElement, look = getComputedStyle(it);
            return [it === document.body, it.innerText.trim() || it.getAttribute('aria-label') || '', look.outlineStyle,
                    parseFloat(look.outlineWidth), it.tagName, it.tabIndex]; }"""
        )
        if at[0]:
            break
        assert (at[2] != "none", at[3] >= 2) == (True, True), f"{window.url}: no focus is seen at {at}"
        reached.append(at[1])
    offered = window.locator("a[href]:not([aria-disabled]), button, input, summary").all()
    shown = {item.inner_text().strip() for item in offered if item.is_visible() and item.inner_text().strip()}
    assert {text for text in shown if not any(text in place for place in reached)} == set(), window.url


def test_pages_of_admins_are_worked_by_keyboard(scenario: Scenario, browser: Browser, live_server: Any) -> None:
    window = signed_in(browser, live_server.url, "admin")
    record = QuarantinedRecord.objects.filter(status="open").latest("pk")
    for address in ("tokens/", "budgets/channels/", f"quarantine/{record.pk}/", "close/?month=2026-11", "people/",
                    "ownership/teams/", "sources/install/", "start/"):  # fmt: skip
        window.goto(f"/{address}")
        wait_until_all_there(window)
        walked_by_keyboard(window)
    window.context.close()


def test_the_keyboard_reaches_everything_and_shows_its_focus(scenario: Scenario, browser: Browser, live_server: Any) -> None:
    window = signed_in(browser, live_server.url, "finance")
    window.goto("/?month=2026-10")
    wait_until_all_there(window)
    window.keyboard.press("Tab")
    skip = window.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    window.keyboard.press("Enter")
    window.keyboard.press("Tab")
    assert window.evaluate("document.querySelector('main').contains(document.activeElement)")
    window.reload()
    wait_until_all_there(window)
    walked_by_keyboard(window)
    window.context.close()


SCROLLING_MOVES_THE_FOCUS_START = """Element.prototype.scrollIntoView = function () {
    const before = this.tabIndex; this.tabIndex = before; this.focus({preventScroll: true}); this.blur(); }"""
"""What some releases of Chromium do: the next Tab starts at the element that was scrolled into view."""


@pytest.mark.parametrize("size", [SIZES["desk"], {"width": 1280, "height": 480}], ids=["desk", "low"])
@pytest.mark.parametrize("address", ["/?month=2026-10", "/sources/", "/quarantine/"])
def test_the_first_tab_reaches_the_skip_link_wherever_the_menu_was_scrolled_to(
    scenario: Scenario, browser: Browser, live_server: Any, size: dict[str, int], address: str
) -> None:
    window = signed_in(browser, live_server.url, "admin")
    window.set_viewport_size(size)  # type: ignore[arg-type]
    window.add_init_script(SCROLLING_MOVES_THE_FOCUS_START)
    window.goto(address)
    wait_until_all_there(window)
    expect(window.locator(".menu [aria-current]")).to_be_in_viewport(ratio=0.99)
    window.keyboard.press("Tab")
    skip = window.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    window.keyboard.press("Enter")
    window.keyboard.press("Tab")
    assert window.evaluate("document.querySelector('main').contains(document.activeElement)")
    window.context.close()


def test_a_line_is_reached_from_the_overview_without_a_mouse(scenario: Scenario, browser: Browser, live_server: Any) -> None:
    window = signed_in(browser, live_server.url, "lead")
    window.goto("/?month=2026-10")
    for name in ("NLP Research", "NVIDIA-H800"):
        window.get_by_role("link", name=name).first.focus()
        window.keyboard.press("Enter")
        expect(window.get_by_role("heading", level=1)).to_contain_text(name)
    window.context.close()
