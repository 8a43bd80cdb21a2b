"""Waiting for the state of a page under its own policy.

`Page.wait_for_function` polls with `eval` inside the page, which the strict policy of the portal refuses: it passes only
when the first look is already true. Here the test does the polling and the page is only asked.
"""

import time

from playwright.sync_api import Error, Page

PATIENCE = 20
"""Seconds that a browser test waits for what must come; no test waits for what must not."""
ALL_THERE = "!document.querySelector('.htmx-request, .htmx-swapping, .htmx-settling, .lazy[hx-trigger=load]')"


def wait_until_true(page: Page, expression: str, seconds: float = PATIENCE) -> None:
    """Ask `expression` (JavaScript, a truth value) until it holds; AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not _holds(page, expression):
        assert time.monotonic() < end, f"not true within {seconds} s: {expression}"
        page.wait_for_timeout(25)


def _holds(page: Page, expression: str) -> bool:
    """A page that shows itself anew while it is asked has no answer: the next one has."""
    try:
        return bool(page.evaluate(expression))
    except Error as error:
        if "Execution context was destroyed" not in error.message:
            raise
        return False


def wait_until_all_there(page: Page) -> None:
    """Until every late part of the page is in its place: what is looked at before that is another page each time."""
    wait_until_true(page, ALL_THERE)


def send(page: Page, press: str, *, exact: bool = False) -> None:
    """Press a button that posts its form, and wait for the answer: what comes next would overtake it."""
    with page.expect_navigation():
        page.get_by_role("button", name=press, exact=exact).first.click()
