"""A newcomer meets usage without a price, and two persons give it one: from the inbox of each, with their clicks counted."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from billing.closing.report import build_report
from billing.inbox.services import findings_refresh
from billing.invoices.services.periods import period_open
from billing.rates.models import PriceDraft, PriceVersion
from tests.browser.polling import PATIENCE
from tests.browser.walks import Walk
from tests.factories import apply, ingest_tokens, person, token_record
from tests.factories.browser import SIZES, picture, signed_in
from tests.factories.commands import since_2024

pytestmark = pytest.mark.django_db(transaction=True)
OVER = datetime(2024, 11, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize("size", SIZES)
def test_two_persons_give_a_model_its_price(browser: Browser, live_server: Any, tmp_path: Path, size: str) -> None:
    """Five clicks of finance and four of the approver; on a phone the menu takes one more of each."""
    apply(tmp_path, **since_2024())
    ingest_tokens(token_record(time="2024-10-01T00:20:00+08:00", model="qwen-3", cache_read_input_tokens=0))
    person("li", "finance")
    person("wang", "approver")
    assert unpriced() == ["qwen-3 input", "qwen-3 output"]
    findings_refresh(now=timezone.now())

    finance = walk(browser, live_server.url, "li", size)
    finance.inbox("/prices/drafts/new/")
    form = finance.page.locator("form.prices-form")
    expect(form).to_be_visible()
    picture(finance.page, f"no-price-form-{size}")
    row = form.locator("tr").filter(has=finance.page.locator("input[name^='tokens_model'][value='qwen-3']"))
    for name, price in (("input", "1.5"), ("output", "6")):
        row.locator(f"input[name='tokens_{name}']").fill(price)
    form.locator("[name=reason]").fill("qwen-3 is new")
    finance.ends("Save the draft")
    finance.click(finance.page.locator("summary").filter(has_text=finance.words("Submit…")))
    finance.ends("Submit for approval")
    draft = PriceDraft.objects.get()
    assert (draft.state, draft.makers, draft.reason) == ("submitted", ["li"], "qwen-3 is new")
    assert draft.valid_from == datetime(2024, 9, 30, 16, tzinfo=UTC)

    approver = walk(browser, live_server.url, "wang", size)
    approver.inbox(f"/prices/drafts/{draft.pk}/")
    approver.click(approver.page.locator("summary").filter(has_text=approver.words("Approve…")))
    picture(approver.page, f"no-price-approval-{size}")
    approver.ends("Approve and publish")
    assert PriceVersion.objects.latest("pk").published_by == "wang"
    assert unpriced() == []
    more = 1 if size == "phone" else 0
    assert (finance.clicks, approver.clicks) == (5 + more, 4 + more)


def walk(browser: Browser, site: str, who: str, size: str) -> Walk:
    page: Page = signed_in(browser, site, who)
    page.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE * 1000)
    page.goto("/", wait_until="domcontentloaded")
    return Walk(page, "en", phone=size == "phone", decides=True)


def unpriced() -> list[str]:
    report = build_report(period_open(month="2024-10"), now=OVER)
    return [item.subject for item in report.exceptions if item.kind == "unpriced"]
