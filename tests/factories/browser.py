"""What tests in Chromium share: sizes, windows, pictures, and a portal with everything on its pages."""

import os
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from tests import factories
from tests.full_scenario import Scenario, build_scenario, pleasant


def sign_in(page: Page, *, staff: bool) -> None:
    role, team = ("finance", None) if staff else ("lead", "nlp")
    factories.person("somebody", role, team=team, password="a long pass phrase")
    page.goto("/?month=2026-10")
    page.get_by_label("User name").fill("somebody")
    page.get_by_label("Password").fill("a long pass phrase")
    page.get_by_role("button", name="Sign in").click()
    open_menu(page)
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def open_menu(page: Page) -> None:
    """The menu is there at once on a desk, and behind its button on a phone."""
    expect(page.locator("header.side")).to_be_visible()
    page.wait_for_load_state()  # its script runs last
    button = page.locator(".menu-button[aria-expanded=false]")
    if button.is_visible():
        button.click()


SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return build_scenario(tmp_path, pleasant)


def signed_in(browser: Browser, site: str, who: str, **options: Any) -> Page:
    """A window of somebody who is signed in already."""
    client = Client()
    client.force_login(User.objects.get(username=who))
    context = browser.new_context(base_url=site, viewport=SIZES["desk"], bypass_csp=True, **options)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site}])
    return context.new_page()


PHONE = {"width": 390, "height": 844}


def picture(page: Page, name: str) -> None:
    """Kept where SUANPAN_SCREENSHOTS says, for people to look at."""
    folder = os.environ.get("SUANPAN_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


PAINTED = """canvas => { const {width, height} = canvas;
    const colours = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
    return new Set(colours).size; }"""


STILL = 0.02
"""A fifth of what Chromium calls good (0.1). Pages that hold still measure 0.0; a part that pushed a table down measured
0.08 to 0.10 on a desk. On a phone little of what is pushed is on the screen, so places are compared as well."""
WATCH = """window.moved = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.moved.push([entry.value,
  ...entry.sources.map((source) => source.node?.outerHTML?.slice(0, 90) ?? "?")])))
  .observe({ type: "layout-shift", buffered: true });"""
"""What Chromium saw move since the page began, as `window.moved`: how much, and the elements."""
CUT_OFF = """() => [...document.querySelectorAll("select, .menu a, .tabs a, .button, button")]
  .filter((one) => one.checkVisibility()).map((one) => {
    const style = getComputedStyle(one), pen = document.createElement("canvas").getContext("2d");
    const outside = one.getBoundingClientRect().right - innerWidth;
    pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    if (one.tagName !== "SELECT") return [one.innerText, Math.max(one.scrollWidth - one.clientWidth, outside)];
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - (one.multiple ? 4 : 16);
    const longest = Math.max(...[...one.options].map((option) => pen.measureText(option.text).width));
    return [`${one.name}: ${[...one.options].map((option) => option.text)}`, Math.max(longest - room, outside)];
  }).filter(([, over]) => over > 1)"""
"""What does not show as a whole, with the pixels that are missing; the arrow of a choice takes 16, the edges of a list 4."""
