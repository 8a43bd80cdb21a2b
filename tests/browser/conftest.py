"""What browser tests share: patience. Chromium, the server and the database may share two busy processors."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.polling import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)


NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without windows, and takes less than half of the processor."""
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a worker; each has windows of its own."""
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        pytest.fail("no Chromium: install the package chromium-headless-shell (CI does)")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # playwright's loop runs in this thread; the tests are synchronous
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield running
        running.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(browser: Browser, live_server: Any) -> Iterator[Page]:
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("dialog", lambda dialog: failures.append(f"dialog {dialog.message}"))
    page.on("console", lambda said: failures.append(said.text) if "Security Policy" in said.text else None)
    yield page
    context.close()
    assert not failures
