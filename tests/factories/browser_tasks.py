"""People with a task, and the sizes and languages in which each of them works."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import gettext, override
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.polling import PATIENCE, send, wait_until_all_there
from tests.factories.browser import open_menu
from tests.full_scenario import Scenario, build_scenario, pleasant

SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@dataclass
class Person:
    """Somebody at a window, who reads one language."""

    page: Page
    language: str
    size: str
    who: str
    stations: int = 0

    def words(self, text: str) -> str:
        """A text of the portal in the language of this person."""
        with override(self.language):
            return gettext(text)

    def follow(self, text: str) -> None:
        """A link by its words, or by a name that nobody translates."""
        name = self.words(text)
        # The page may be on its way still, and a menu opened too early would lie over it.
        self.page.get_by_role("link", name=name, include_hidden=True).first.wait_for(state="attached")
        link = self.page.get_by_role("link", name=name).first
        if not link.is_visible():
            open_menu(self.page)
        address = urljoin(self.page.url, link.get_attribute("href") or "")
        link.click()
        self.page.wait_for_url(address)

    def press(self, text: str) -> None:
        self.page.get_by_role("button", name=self.words(text), exact=True).first.click()

    def send(self, text: str) -> None:
        """Press a button that posts its form, and stand before the answer."""
        send(self.page, self.words(text), exact=True)

    def field(self, label: str) -> Locator:
        return self.page.get_by_label(self.words(label), exact=True).first

    def unfold(self, text: str) -> None:
        self.page.locator("summary").filter(has_text=self.words(text)).first.click()

    def reads(self, text: str) -> None:
        expect(self.page.locator("main")).to_contain_text(self.words(text))

    def station(self, name: str) -> None:
        """Nothing runs off the side, and everything is in one language; a picture where somebody asked for them."""
        self.stations += 1
        self.page.wait_for_load_state()  # the words of a page are there before its style is
        wait_until_all_there(self.page)
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (name, wide)
        if self.size == "desk":
            laid = self.page.evaluate("[...document.querySelectorAll('table')].map(one => getComputedStyle(one).display)")
            assert set(laid) <= {"table"}, (name, "columns stand under their heads", laid)
        folder = os.environ.get("SUANPAN_SCREENSHOTS")
        if folder:
            shot = f"{self.who}-{self.stations:02d}-{name}-{self.language}-{self.size}.png"
            self.page.screenshot(path=Path(folder) / shot, full_page=True)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return build_scenario(tmp_path, pleasant)


@pytest.fixture(params=list(SIZES))
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["en", "zh-hans"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def come(browser: Browser, live_server: Any, scenario: Scenario, language: str, size: str) -> Iterator[Any]:
    """Somebody who has signed in, has chosen the language, and looks at October."""
    failures: list[str] = []
    contexts = []

    def enter(who: str) -> Person:
        client = Client()
        client.force_login(User.objects.get(username=who))
        context = browser.new_context(
            base_url=live_server.url,
            viewport=SIZES[size],
            locale="en-GB",
            has_touch=size == "phone",  # type: ignore[arg-type]
        )
        context.add_cookies([
            {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url},
        ])  # fmt: skip
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda said: failures.append(said.text) if "Security Policy" in said.text else None)
        page.goto("/?month=2026-10")
        if language != "en":
            open_menu(page)
            page.get_by_role("button", name="简体中文").click()
        expect(page.locator("html")).to_have_attribute("lang", language)
        return Person(page, language, size, who)

    yield enter
    for context in contexts:
        context.close()
    assert not failures
