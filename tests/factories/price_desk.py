"""A month with prices to change, and people who change them in Chromium."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from billing.rates.services import cost_sheet_put, token_cost_sheet_put
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.prices import SHEET, TOKEN_SHEET

SHOTS = os.environ.get("SUANPAN_SCREENSHOTS")


def shot(page: Page, name: str) -> None:
    """Keep a picture where somebody asked for them."""
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


@pytest.fixture
def october(tmp_path: Path) -> None:
    first = SET_UP["price_versions"][0]
    gpu = [*first["gpu"], {"accelerator": "NVIDIA-A800", "price_per_gpu_hour": "6"}]
    apply(tmp_path, price_versions=[{**first, "gpu": gpu}])
    ingest_allocations(
        allocation_record(1),
        allocation_record(2, namespace="cv", quantity=4, resource="nvidia.com/mig-1g.10gb", device_fraction="0.142857"),
        allocation_record(3, namespace="cv", quantity=2, accelerator="NVIDIA-A800"),
        from_file=True,
    )
    ingest_tokens(token_record(1, input_tokens=2_000_000, cache_read_input_tokens=0, output_tokens=500_000))
    cost_sheet_put(name="h800-hq", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="ana")
    token_cost_sheet_put(name="llama-on-h800", inputs={**TOKEN_SHEET, "method": "ratio"}, actor="ana")


def sign_in(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")  # an answer on its way would bring its cookies back
    page.goto("about:blank")
    page.context.clear_cookies()
    page.goto("/prices/")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill("a long pass phrase")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Prices", exact=True)).to_be_visible()


def person(name: str, role: str) -> None:
    factories.person(name, role, password="a long pass phrase")
