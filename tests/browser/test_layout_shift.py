"""Pages hold still: what arrives after the page moves nothing that somebody may be about to click.

Every late part is held back until the page stands, and is let go only then: the slowest machine, without waiting for one.
"""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, Page, Route, expect

from billing.budgets.models import Budget
from billing.rates.services import cost_sheet_put, price_draft_create
from metering.intervals import month_of, previous_month
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests import factories
from tests.browser.polling import ALL_THERE, PATIENCE
from tests.factories.browser import SIZES, STILL, WATCH
from tests.factories.budgets import past
from tests.factories.prices import SHEET

__all__ = ["past"]
pytestmark = pytest.mark.django_db(transaction=True)
REMEMBER = """() => { window.stood = [...document.querySelectorAll("main :is(a[href], button, select, input, summary)")]
  .filter((one) => one.getClientRects().length && !one.closest(".lazy, [hx-trigger^=load]"))
  .map((one) => [one, one.getBoundingClientRect().x, one.getBoundingClientRect().y + scrollY]); }"""
"""Where everything stands that can be clicked; a place for a late part, and what is in it until then, is left out."""
ELSEWHERE = """() => window.stood.map(([one, x, y]) => [one, one.getBoundingClientRect().x - x,
    one.getBoundingClientRect().y + scrollY - y])
  .filter(([one, right, down]) => !one.isConnected || Math.abs(right) > 0.5 || Math.abs(down) > 0.5)
  .map(([one, right, down]) => [one.tagName, one.innerText || one.name, right, down])"""


@dataclass
class Late:
    """The parts of a page that are asked for and not yet answered."""

    page: Page
    held: list[Route] = field(default_factory=list)

    def hold(self, route: Route) -> None:
        if route.request.headers.get("hx-request"):
            self.held.append(route)
        else:
            route.continue_()

    def let_go(self, least: int) -> None:
        """Answer them as soon as there are so many, and wait until each is in its place."""
        end = time.monotonic() + PATIENCE
        while len(self.held) < least:
            assert time.monotonic() < end, f"{self.page.url}: {len(self.held)} late parts were asked for, not {least}"
            self.page.wait_for_timeout(25)
        while self.held or not self.page.evaluate(ALL_THERE):
            assert time.monotonic() < end, f"{self.page.url}: a late part does not stand"
            if self.held:
                self.held.pop(0).continue_()
            self.page.wait_for_timeout(25)
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture
def pages(past: Budget) -> dict[str, int]:
    """The pages with late parts, and how many each has at least when it stands."""
    inputs = {**SHEET, "currency": "CNY"}
    cost_sheet_put(name="h800-hq", inputs=inputs, result=cost_of_gpu_hour(parse_cost_sheet(inputs)).as_dict(), actor="ana")
    draft = price_draft_create(
        name="next", valid_from=datetime(2099, 1, 1, tzinfo=UTC), actor="ana", now=timezone.now(),
        content={"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11"}]},
    )  # fmt: skip
    month = month_of(timezone.now(), "Asia/Shanghai")
    return {
        f"/?month={month}": 2, f"/?month={previous_month(month)}": 1, f"/teams/nlp/?month={month}": 2,
        f"/spending/?month={month}": 2, f"/spending/?month={month}&team=nlp&by=accelerator": 2,
        f"/explorer/?month={month}": 1, f"/explorer/?month={previous_month(month)}": 1, f"/prices/drafts/{draft.pk}/": 1,
        "/prices/workbench/?sheet=h800-hq": 1,
    }  # fmt: skip


def come(browser: Browser, site: str, size: str, language: str = "en") -> tuple[Page, Late]:
    """A window of finance whose late parts wait to be let go."""
    factories.person("finance", "finance")
    client = Client()
    client.force_login(User.objects.get(username="finance"))
    context = browser.new_context(base_url=site, viewport=SIZES[size])  # type: ignore[arg-type]
    cookies = {"sessionid": client.cookies["sessionid"].value, "django_language": language}
    context.add_cookies([{"name": name, "value": value, "url": site} for name, value in cookies.items()])
    context.add_init_script(WATCH)
    page = context.new_page()
    late = Late(page)
    page.route("**/*", late.hold)
    return page, late


def moved(page: Page, late: Late, address: str, least: int) -> list[Any]:
    """What stands elsewhere (pixels right and down) after the late parts of a page; what Chromium saw move, if too much."""
    page.goto(address)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.evaluate(REMEMBER)
    late.let_go(least)
    found: list[Any] = page.evaluate(ELSEWHERE)
    shifts = page.evaluate("window.moved")
    return found + (shifts if sum(shift[0] for shift in shifts) >= STILL else [])


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("size", list(SIZES))
def test_nothing_moves_when_late_parts_arrive(
    pages: dict[str, int], browser: Browser, live_server: Any, size: str, language: str
) -> None:
    page, late = come(browser, live_server.url, size, language)
    found = {address: moved(page, late, address, least) for address, least in pages.items()}
    page.context.close()
    assert {address: what for address, what in found.items() if what} == {}


@pytest.mark.parametrize("size", list(SIZES))
def test_a_click_that_a_late_part_overtakes_is_not_lost(
    pages: dict[str, int], browser: Browser, live_server: Any, size: str
) -> None:
    """A finger or a button is down for a tenth of a second; a part that arrives just then must leave the link under it."""
    page, late = come(browser, live_server.url, size)
    page.goto(next(iter(pages)))
    page.get_by_role("link", name="NLP Research").hover()
    page.mouse.down()
    late.let_go(2)
    page.mouse.up()
    expect(page).to_have_url(re.compile("/teams/nlp/"))
    page.context.close()
