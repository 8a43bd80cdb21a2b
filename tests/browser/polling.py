"""Waiting for the state of a page under its own policy.

`Page.wait_for_function` polls with `eval` inside the page, which the strict policy of the portal refuses: it passes only
when the first look is already true. Here the test does the polling and the page is only asked.
"""

import time

from playwright.sync_api import Page


def wait_until_true(page: Page, expression: str, seconds: float = 10) -> None:
    """Ask `expression` (JavaScript, a truth value) until it holds; AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not true within {seconds} s: {expression}"
        page.wait_for_timeout(25)
