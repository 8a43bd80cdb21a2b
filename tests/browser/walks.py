"""Somebody who does a task in a browser, with the clicks counted."""

from django.utils.translation import gettext, override
from playwright.sync_api import Locator, Page, expect

MENU = 1
"""On a phone the menu is behind a button: one click more."""


class Walk:
    """Somebody at a window, whose clicks are counted. Choices in lists and keys are none."""

    def __init__(self, page: Page, language: str, *, phone: bool, decides: bool) -> None:
        self.page, self.language, self.phone, self.decides, self.clicks = page, language, phone, decides, 0

    def words(self, text: str) -> str:
        with override(self.language):
            return gettext(text)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.first.click()

    def menu(self, address: str) -> None:
        """An entry of the menu, by where it leads."""
        if self.phone:
            self.page.wait_for_load_state("domcontentloaded")
            self.click(self.page.locator(".menu-button"))
        self.click(self.page.locator(f"nav a[href^='{address}']"))
        self.page.wait_for_url(f"**{address}**")

    def inbox(self, address: str) -> None:
        """What waits, by where it ends."""
        self.menu("/inbox/")
        self.click(self.page.locator(f"main .inbox a[href^='{address}']"))
        self.page.wait_for_url(f"**{address}**")

    def ends(self, button: str) -> None:
        """The button that ends the task: pressed in the last walk, counted in each."""
        found = self.page.locator("main").get_by_role("button", name=self.words(button), exact=True).first
        expect(found).to_be_visible()
        if self.decides:
            with self.page.expect_navigation():
                self.click(found)
        else:
            self.clicks += 1
