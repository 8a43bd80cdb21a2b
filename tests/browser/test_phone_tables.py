"""Every table of the portal is on the screen as a whole, on a desk and on a phone: nobody drags it to see an amount."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.polling import wait_until_all_there
from tests.factories.browser import SIZES, signed_in
from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import one_of_each

pytestmark = pytest.mark.django_db(transaction=True)
DRAGGED = """() => [...document.querySelectorAll("main .scroll")]
  .filter((part) => part.getClientRects().length && !part.querySelector("table.heat"))
  .map((part) => [part.getAttribute("aria-labelledby") || part.ariaLabel, part.scrollWidth - part.clientWidth])
  .filter(([, over]) => over > 1)
"""
"""Tables by name with the pixels that hang over; hours of the week are a picture of 24 columns, which is dragged."""


def test_no_table_hangs_over_the_edge(tmp_path: Path, browser: Browser, live_server: Any) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    pages = one_of_each("finance", scenario)
    window = signed_in(browser, live_server.url, "finance")
    found = {}
    for language in ("en", "zh-hans"):
        window.context.add_cookies([{"name": "django_language", "value": language, "url": live_server.url}])
        for address in pages.values():
            window.goto(address)
            wait_until_all_there(window)
            for size, viewport in SIZES.items():
                window.set_viewport_size(viewport)  # type: ignore[arg-type]
                if faults := window.evaluate(DRAGGED):
                    found[language, size, address] = faults
    window.context.close()
    assert found == {}
