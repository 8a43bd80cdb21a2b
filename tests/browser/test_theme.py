"""The reader chooses light or dark, or follows the system; the browser remembers it, and paper stays light."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.factories.browser import PHONE, open_menu, picture, scenario, signed_in
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)
LIGHT, DARK, WHITE = "rgb(250, 248, 244)", "rgb(19, 21, 25)", "rgb(255, 255, 255)"


def paper(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_a_chosen_theme_is_remembered_and_system_follows_the_system_again(
    scenario: Scenario, browser: Browser, live_server: Any
) -> None:
    page = signed_in(browser, live_server.url, "finance", color_scheme="light")
    page.goto("/budgets/")
    choice = page.get_by_label("Theme")
    seen = [paper(page)]
    choice.select_option("dark")
    seen.append(paper(page))
    page.goto("/invoices/")
    assert choice.input_value() == "dark"
    picture(page, "theme-dark")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    picture(page, "theme-dark-phone")
    seen.append(paper(page))
    page.emulate_media(media="print")
    seen.append(paper(page))
    page.emulate_media(media="screen", color_scheme="dark")
    open_menu(page)
    choice.select_option("light")
    seen.append(paper(page))
    choice.select_option("system")
    seen.append(paper(page))
    page.emulate_media(color_scheme="light")
    seen.append(paper(page))
    page.context.close()
    assert seen == [LIGHT, DARK, DARK, WHITE, LIGHT, DARK, LIGHT]
