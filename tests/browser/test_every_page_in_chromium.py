"""Every page of the portal in Chromium, in both languages, on a desk, on a phone and on paper.

One walk serves all that is looked at: axe-core (which comes with the package axe-playwright-python) finds nothing serious in
light and dark, nothing moves while a page loads, the console shows no error, no page, table, choice or button hangs over the
edge of the screen, and a printed page is light, as wide as the sheet, and has nothing to press.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.axe import AXE, faults
from tests.browser.polling import wait_until_all_there
from tests.factories.browser import CUT_OFF, PHONE, SIZES, STILL, WATCH, scenario, signed_in
from tests.full_scenario import Scenario
from tests.site_walk import one_of_each

__all__ = ["scenario"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that another theme can break: the themes differ in nothing else."""
BUTTONS = {
    "lead": {"budgets/<int:pk>/", "anomalies/", "disputes/<int:pk>/", "overview/", "explorer/", "invoices/<int:pk>/",
             "teams/<str:code>/", "spending/", "budgets/"},
    "admin": {"quarantine/", "quarantine/<int:pk>/", "prices/", "budgets/channels/", "ownership/", "sources/"},
    "approver": {"ownership/teams/", "prices/drafts/<int:pk>/"},
}  # fmt: skip
"""Pages of finance on which others have other buttons or parts."""

DRAGGED = """() => [...document.querySelectorAll("main .scroll")]
  .filter((part) => part.getClientRects().length && !part.querySelector("table.heat"))
  .map((part) => [part.getAttribute("aria-labelledby") || part.ariaLabel, part.scrollWidth - part.clientWidth])
  .filter(([, over]) => over > 1)
"""
"""Tables by name with the pixels that hang over; hours of the week are a picture of 24 columns, which is dragged."""
PAPER = {"width": 703, "height": 1000}
"""The width of A4 between its margins of 12 mm, in CSS pixels."""
TO_PRESS = "nav, button, .button, .downloads, .pager, .filters, .tabs, main form:not(.printable), [type=file]"
ON_PAPER = """(pressed) => {
  const seen = (element) => element.getClientRects().length > 0;
  const name = (element) => `${element.tagName} ${element.className} ${element.textContent.trim().slice(0, 40)}`;
  const main = (document.querySelector("main") ?? document.body).getBoundingClientRect();
  const faults = [...document.querySelectorAll(pressed)].filter(seen).map((element) => `to press: ${name(element)}`);
  for (const table of [...document.querySelectorAll("main table")].filter(seen)) {
    const box = table.getBoundingClientRect();
    if (box.right > main.right + 1) faults.push(`too wide by ${Math.round(box.right - main.right)}: ${name(table)}`);
    for (const foot of table.querySelectorAll("tfoot")) {
      if (getComputedStyle(foot).display !== "table-row-group") faults.push(`a sum on every sheet: ${name(foot)}`);
    }
    for (const row of table.rows) {
      if (getComputedStyle(row).breakInside !== "avoid") { faults.push(`a row may be cut: ${name(row)}`); break; }
    }
  }
  const page = getComputedStyle(document.body);
  if (page.backgroundColor !== "rgb(255, 255, 255)") faults.push(`the paper is ${page.backgroundColor}`);
  if (page.color !== "rgb(27, 32, 39)") faults.push(`the ink is ${page.color}`);
  return faults;
}"""


@pytest.mark.parametrize("who", ["finance", "lead", "admin", "approver"])
def test_every_page_is_whole_on_a_desk_on_a_phone_and_on_paper(
    scenario: Scenario, browser: Browser, live_server: Any, who: str
) -> None:
    """Of each role but finance the pages that finance does not see, or sees with other buttons."""
    pages = one_of_each(who, scenario)
    if who != "finance":
        of_finance = one_of_each("finance", scenario)
        pages = {route: one for route, one in pages.items() if route not in of_finance or route in BUTTONS[who]}
        assert BUTTONS[who] <= set(pages)
    window, errors = signed_in(browser, live_server.url, who), list[str]()
    window.add_init_script(WATCH)
    window.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    window.on("pageerror", lambda error: errors.append(str(error)))
    found = [fault for route, address in pages.items() for fault in looked_at(window, route, address)]
    assert window.locator(TO_PRESS).count() > 0  # they are there, and only not printed
    for route, address in pages.items() if who == "finance" else ():
        window.context.add_cookies([{"name": "django_language", "value": "zh-hans", "url": live_server.url}])
        window.set_viewport_size(SIZES["desk"])  # type: ignore[arg-type]
        window.goto(address)
        wait_until_all_there(window)
        found += [f"{route} in Chinese: {fault}" for fault in hanging_over(window)]
    window.context.close()
    report(who, found + errors)
    assert (found, errors) == ([], [])


def looked_at(page: Page, route: str, address: str) -> Iterator[str]:
    """What is wrong with a page in English; in the end it stands as on a phone."""
    page.set_viewport_size(SIZES["desk"])  # type: ignore[arg-type]
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, (address, answer.status)
    wait_until_all_there(page)
    shifts = page.evaluate("window.moved")
    if sum(shift[0] for shift in shifts) >= STILL:
        yield f"{route}: {shifts}"
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(PAPER)  # type: ignore[arg-type]
    yield from (f"{route} on paper: {fault}" for fault in page.evaluate(ON_PAPER, TO_PRESS))
    page.emulate_media(media="screen")
    yield from (f"{route}: {fault}" for check in (inaccessible, hanging_over) for fault in check(page))


def inaccessible(page: Page) -> Iterator[str]:
    """What axe-core finds on a page, on a desk and on a phone, in light and dark."""
    page.evaluate(AXE)
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        for theme, rules in (("light", ()), ("dark", OF_COLOURS)):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            yield from faults(page, f"{size} {theme}", rules)


def hanging_over(page: Page) -> Iterator[str]:
    """What of a page is not on the screen as a whole, on a desk and on a phone."""
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            yield f"{size}: runs {wide} pixels off the side"
        yield from (f"{size}: the table hangs over: {table}" for table in page.evaluate(DRAGGED))
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.evaluate("() => document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    wait_until_all_there(page)
    yield from (f"phone: cut off: {part}" for part in page.evaluate(CUT_OFF))


def report(who: str, found: list[str]) -> None:
    """Kept where SUANPAN_SCREENSHOTS says."""
    folder = os.environ.get("SUANPAN_SCREENSHOTS")
    if folder:
        (Path(folder) / f"pages-{who}.txt").write_text("\n".join(found))


def test_the_page_of_signing_in_is_accessible_and_whole(browser: Browser, live_server: Any) -> None:
    window = browser.new_context(base_url=live_server.url, bypass_csp=True).new_page()
    window.add_init_script(WATCH)
    window.goto("/login/")
    found = [*inaccessible(window), *hanging_over(window)]
    window.context.close()
    assert found == []
