"""Why did my bill go up: from the sign-in to the job that did it, in at most two clicks and ten seconds."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation import gettext, override
from playwright.sync_api import Browser, Locator, Page, expect

from tests.factories import person
from tests.factories.browser import SIZES, picture
from tests.factories.two_months import two_months

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)
LANGUAGES = {"en": "en-GB", "zh-hans": "zh-CN"}
PASSWORD = "a long pass phrase"  # of a person of this test
CLICKS, SECONDS = 2, 10
WINDOWS = {"wide": {"width": 1440, "height": 900}, **SIZES}
ABOVE = ("wide", "desk")
"""The windows in which the whole bridge is seen without scrolling."""


class Walk:
    """Somebody at a window, whose clicks are counted."""

    def __init__(self, page: Page, language: str) -> None:
        self.page, self.language, self.clicks = page, language, 0

    def words(self, text: str) -> str:
        with override(self.language):
            return gettext(text)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def signs_in(self) -> None:
        self.page.goto("/")
        self.page.locator("input[name=login]").fill("lead")
        self.page.locator("input[name=password]").fill(PASSWORD)
        self.page.locator("form:has(input[name=password]) button[type=submit]").click()


def test_why_the_bill_went_up_is_two_clicks_from_the_sign_in(
    browser: Browser, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    two_months(tmp_path)
    person("lead", "lead", team="nlp", password=PASSWORD)
    for language, locale in LANGUAGES.items():
        for size, viewport in WINDOWS.items():
            context = browser.new_context(base_url=live_server.url, viewport=viewport, locale=locale)  # type: ignore[arg-type]
            walk = Walk(context.new_page(), language)
            walk.signs_in()
            begun = time.monotonic()
            why = walk.page.locator("#why")
            expect(why).to_contain_text("+40.00")  # 50.00 in October, 10.00 in September
            expect(why).to_contain_text("+10.00")  # of it the price: 4 h x 2.50
            larger = "cell => cell.insertAdjacentHTML('beforeend', '<span class=under>By usage −1,016,902.81</span>')"
            why.locator("tbody td.n").first.evaluate(larger)
            assert why.locator(".card").evaluate("card => card.scrollWidth <= card.clientWidth"), (language, size)
            picture(walk.page, f"why-{language}-{size}")
            walk.page.emulate_media(color_scheme="dark")
            picture(walk.page, f"why-{language}-{size}-dark")
            walk.page.emulate_media(color_scheme="light")
            if size in ABOVE:
                box = why.locator("dl.bridge").bounding_box()
                assert box is not None
                assert box["y"] + box["height"] <= viewport["height"], (language, size, box)
            walk.click(why.get_by_role("link", name=walk.words("Job"), exact=True))
            expect(why.locator("tbody tr").first).to_contain_text("+25.00")
            walk.click(why.get_by_role("link", name="tune"))
            expect(walk.page.locator(".hero .total")).to_contain_text("25.00")
            took = time.monotonic() - begun
            assert "job=Job%2Ftune" in walk.page.url
            assert (walk.clicks, took < SECONDS) == (CLICKS, True), (language, size, took)
            wide = walk.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, (language, size, wide)
            context.close()
