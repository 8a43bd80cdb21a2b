"""Pages on paper: no row is lost at the end of a sheet, no sum is said twice, and what is folded away is printed."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from billing.closing.services.closing import period_close
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, person
from tests.factories.browser import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


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
