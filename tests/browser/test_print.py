"""Pages on paper: nothing to press, light, no wider than the sheet, no row lost at the end of one, no sum said twice."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from pypdf import PdfReader

from billing.closing.services.closing import period_close
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from tests.browser.polling import wait_until_all_there
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, person
from tests.factories.browser import signed_in
from tests.full_scenario import build_scenario, pleasant
from tests.site_walk import one_of_each

pytestmark = pytest.mark.django_db(transaction=True)
PAPER = {"width": 703, "height": 1000}
"""The width of A4 between its margins of 12 mm, in CSS pixels."""
TO_PRESS = "nav, button, .button, .downloads, .pager, .filters, .tabs, main form:not(.printable), [type=file]"
FAULTS = """(pressed) => {
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


def on_paper(page: Page, address: str) -> list[str]:
    """What is wrong with a page once it is printed from a dark screen."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.status in (200, 403), (address, answer.status)  # a walk also tries doors that are closed to its person
    wait_until_all_there(page)
    page.emulate_media(media="print", color_scheme="dark")
    return [f"{address}: {fault}" for fault in page.evaluate(FAULTS, TO_PRESS)]


@pytest.mark.parametrize("who", ["finance", "lead"])
def test_every_page_fits_the_paper_and_has_nothing_to_press(
    tmp_path: Path, browser: Browser, live_server: Any, who: str
) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    window = signed_in(browser, live_server.url, who)
    window.set_viewport_size(PAPER)  # type: ignore[arg-type]
    pages = one_of_each(who, scenario)
    assert {"explorer/", "overview/", "invoices/<int:pk>/", "teams/<str:code>/", "spending/", "budgets/"} <= set(pages)
    found = [fault for address in pages.values() for fault in on_paper(window, address)]
    assert window.locator(TO_PRESS).count() > 0  # they are there, and only not printed
    window.context.close()
    assert found == []


@pytest.fixture
def long_invoice(tmp_path: Path) -> Invoice:
    """A line for each of 90 namespaces: an hour of one device each, 10.00."""
    apply(tmp_path, ownership=[{"cluster": "hq-1", "namespace": "nlp*", "team": "nlp", "valid_from": "2026-01-01"}])
    at = {"started_at": "2026-10-10T06:00:00Z", "ended_at": "2026-10-10T07:00:00Z", "observed_until": "2026-10-10T07:00:00Z"}
    ingest_allocations(*(allocation_record(n, namespace=f"nlp-{n:03d}", quantity=1, **at) for n in range(90)))
    period_close(month="2026-10", actor="closer", now=AFTER)
    invoices_issue(month="2026-10", actor="closer", now=AFTER)
    return Invoice.objects.get()


def test_a_long_invoice_has_heads_on_every_sheet_every_line_once_and_its_sum_at_the_end(
    long_invoice: Invoice, browser: Browser, live_server: Any
) -> None:
    person("finance", "finance")
    window = signed_in(browser, live_server.url, "finance")
    window.goto(f"/invoices/{long_invoice.pk}/")
    sheets = [sheet.extract_text() for sheet in PdfReader(io.BytesIO(window.pdf(format="A4"))).pages]
    window.context.close()
    lines = [sheet for sheet in sheets if "nlp-0" in sheet]
    assert len(lines) >= 3
    assert all("Unit price" in sheet for sheet in lines)
    whole = "\n".join(sheets)
    assert sorted(re.findall(r"nlp-\d{3}", whole)) == [f"nlp-{n:03d}" for n in range(90)]
    assert whole.count("Subtotal") == 1
    assert f"{long_invoice.number}" in sheets[0]
    assert [sheet for sheet in sheets if f"1 / {len(sheets)}" in sheet] == [sheets[0]]
    assert not any(word in whole for word in ("Sign out", "Dispute lines", "Prove that"))


def test_what_is_folded_away_is_printed_and_folded_again(tmp_path: Path, browser: Browser, live_server: Any) -> None:
    apply(tmp_path)
    person("finance", "finance")
    window = signed_in(browser, live_server.url, "finance")
    window.goto("/planner/")
    folded = window.locator("details:not([open])").count()
    assert folded > 0
    window.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert window.locator("details:not([open])").count() == 0
    window.evaluate("dispatchEvent(new Event('afterprint'))")
    assert window.locator("details:not([open])").count() == folded
    window.context.close()
