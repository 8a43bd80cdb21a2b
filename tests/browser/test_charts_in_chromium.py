"""Charts in real Chromium: drawn under the strict policy, in both lights, read with a pointer, and beside a table."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page

from tests.browser.polling import wait_until_true
from tests.factories.browser import PAINTED, scenario
from tests.factories.browser_tasks import SIZES
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)
NEEDS = {
    "/?month=2026-11": 1, "/teams/nlp/?month=2026-11": 1, "/spending/?month=2026-11": 1, "/close/?month=2026-10": 1,
    "/budgets/{budget}/": 1, "{line}": 0,
}  # fmt: skip


def signed_in(browser: Browser, site: str, **options: Any) -> Page:
    """A window of finance under the policy that pages are sent with."""
    client = Client()
    client.force_login(User.objects.get(username="finance"))
    context = browser.new_context(base_url=site, viewport=SIZES["desk"], **options)  # type: ignore[arg-type]
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site}])
    return context.new_page()


@pytest.fixture
def pages(scenario: Scenario) -> dict[str, int]:
    from billing.budgets.models import Budget
    from billing.portal.statements import lines_of

    digest = next(line.digest for line in lines_of(scenario.invoice) if line.key.kind == "gpu")
    line = f"/teams/nlp/lines/{digest}/?month=2026-10"
    return {address.format(budget=Budget.objects.get().pk, line=line): least for address, least in NEEDS.items()}


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_stands_beside_a_table(
    scenario: Scenario, browser: Any, live_server: Any, pages: dict[str, int], size: str, scheme: str
) -> None:
    window: Page = signed_in(browser, live_server.url, color_scheme=scheme, reduced_motion="reduce")
    window.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
    refused: list[str] = []
    window.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
    for address, least in pages.items():
        window.goto(address)
        window.wait_for_load_state("networkidle")
        charts = window.locator("canvas[data-chart]")
        assert charts.count() >= least, address
        for index in range(charts.count()):
            chart = charts.nth(index)
            assert chart.evaluate(PAINTED) > 3, (address, index)
            assert chart.get_attribute("aria-label"), address
            assert chart.evaluate("canvas => canvas.closest('section').querySelector('table') !== null"), (address, index)
        wide = window.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, address
    window.context.close()
    assert refused == []


def test_a_pointer_shows_the_value_and_a_click_leads_on(scenario: Scenario, browser: Any, live_server: Any) -> None:
    window: Page = signed_in(browser, live_server.url)
    window.goto("/?month=2026-11")
    window.wait_for_load_state("networkidle")
    chart = window.locator("section:has(#trend-title) canvas")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] * 0.3, "y": box["height"] * 0.5})
    tip = "Chart.getChart(document.querySelector('section:has(#trend-title) canvas')).tooltip"
    wait_until_true(window, f"{tip}?.body?.length > 0")  # shown with the next picture
    reported = chart.evaluate("canvas => Chart.getChart(canvas).tooltip.body.flatMap(part => part.lines)")
    assert reported == ["Total 356.00 CNY"]
    chart.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.5})
    window.wait_for_url("**/?month=2026-10")
    window.context.close()


def test_a_chart_follows_when_the_light_changes(scenario: Scenario, browser: Any, live_server: Any) -> None:
    window: Page = signed_in(browser, live_server.url, color_scheme="light")
    window.goto("/?month=2026-11")
    grid = "() => Chart.getChart(document.querySelector('section:has(#trend-title) canvas')).options.scales.y.ticks.color"
    light = window.evaluate(grid)
    window.emulate_media(color_scheme="dark")
    wait_until_true(window, f"({grid})() !== {light!r}")
    assert (light, window.evaluate(grid)) == ("#5a626d", "#a5acb6")
    window.get_by_label("Theme").select_option("light")
    wait_until_true(window, f"({grid})() === '#5a626d'")
    window.context.close()
