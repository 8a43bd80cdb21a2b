"""What browser tests share: patience. Chromium, the server and the database may share two busy processors."""

from playwright.sync_api import expect

from tests.browser.polling import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)
