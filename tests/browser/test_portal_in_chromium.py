"""The portal in real Chromium: what a finance person and a team lead do with a month."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from billing.closing.services.closing import period_close
from billing.invoices.services.invoices import invoices_issue
from tests import factories
from tests.browser.polling import wait_until_all_there
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.browser import sign_in

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "nlp-<script>alert(1)</script>"


@pytest.fixture
def month(tmp_path: Path) -> None:
    apply(tmp_path, budgets=[{"team": "nlp", "period": "month", "amount": "1000.00", "thresholds": [50, 80, 100]}])
    ingest_allocations(
        allocation_record(1, workload={"kind": "PyTorchJob", "name": "llama-sft"}),
        allocation_record(2, namespace="cv", quantity=1),
        allocation_record(
            3, namespace=HOSTILE, quantity=1, started_at="2026-10-12T00:00:00Z", ended_at="2026-10-12T01:00:00Z",
            observed_until="2026-10-12T01:00:00Z",
        ),
    )  # fmt: skip
    ingest_tokens(token_record(1, input_tokens=2_000_000, cache_read_input_tokens=0, output_tokens=500_000))
    period_close(month="2026-10", actor="closer", now=AFTER)
    invoices_issue(month="2026-10", actor="closer", now=AFTER)


@pytest.mark.usefixtures("month")
def test_finance_sees_the_month_and_reaches_an_allocation_in_two_clicks(page: Page) -> None:
    sign_in(page, staff=True)
    expect(page.get_by_role("heading", name="2026-10")).to_be_visible()
    body = page.locator("main")
    expect(body).to_contain_text("253.82")  # 209.62 + 10.00 of GPUs, 4.00 + 4.00 of tokens and 26.20 of the other team
    page.get_by_role("link", name="NLP Research").click()
    expect(body).to_contain_text("209.62")
    expect(body).to_contain_text(HOSTILE)
    page.get_by_role("link", name="NVIDIA-H800").last.click()
    expect(body).to_contain_text("llama-sft")


@pytest.mark.usefixtures("month")
def test_a_team_lead_sees_the_own_team_and_downloads_its_invoice(page: Page) -> None:
    sign_in(page, staff=False)
    body = page.locator("main")
    expect(body).to_contain_text("227.62")
    expect(body).not_to_contain_text("Vision")
    page.goto("/invoices/")
    page.get_by_role("link", name="AI-INFRA-2026-000002").first.click()
    with page.expect_download() as download:
        page.get_by_role("link", name="PDF").click()
    assert Path(download.value.path()).read_bytes().startswith(b"%PDF-1.7")
    assert page.goto("/teams/cv/?month=2026-10").status == 404  # type: ignore[union-attr]


def test_an_empty_installation_says_what_to_do_next(page: Page) -> None:
    factories.person("somebody", "admin", password="a long pass phrase")
    page.goto("/")
    page.get_by_label("User name").fill("somebody")
    page.get_by_label("Password").fill("a long pass phrase")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main")).to_contain_text("manage.py apply")


@pytest.mark.usefixtures("month")
def test_the_month_reads_well_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(page, staff=True)
    wait_until_all_there(page)
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0

