"""Price lists in real Chromium: one person writes and submits a list, another looks at what it does and approves it."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from billing.rates.models import PriceDraft, PriceVersion
from tests import factories
from tests.factories.price_desk import october, person, shot, sign_in

__all__ = ["october"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_person_writes_a_list_and_another_approves_it(page: Page, october: None) -> None:
    person("ana", "finance")
    person("ben", "approver")
    sign_in(page, "ana")
    shot(page, "1-prices")

    page.get_by_role("link", name="New price list").click()
    page.get_by_label("Name").fill("2099-01")
    page.get_by_label("In force from").fill("2099-01-01T00:00")
    page.get_by_label("Price or sheet 1").fill("dear")
    page.get_by_role("button", name="Save the draft").click()
    refusals = page.get_by_role("alert")
    expect(refusals).to_contain_text("GPU prices, row 1: 'dear' must be a number from 0 to 1000000")
    expect(page.get_by_label("Price or sheet 1")).to_have_attribute("aria-invalid", "true")
    shot(page, "2-refused")
    assert not PriceDraft.objects.exists()

    page.get_by_label("Priced by 1").select_option("cost_sheet")
    page.get_by_label("Price or sheet 1").fill("h800-hq")
    page.get_by_label("Output 1").fill("10")
    page.get_by_role("button", name="Add a row").first.click()
    rows = page.get_by_label("Accelerator", exact=False)
    page.get_by_label(f"Accelerator {rows.count()}").fill("NVIDIA-L20")
    page.get_by_label(f"Price or sheet {rows.count()}").fill("2.5")
    shot(page, "3-form")
    page.get_by_role("button", name="Save the draft").click()
    expect(page.get_by_role("heading", name="Draft", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="NVIDIA-H800 per GPU-Hours 10.0000 11.5505 +15.51%")).to_be_visible()
    expect(page.get_by_role("row", name="NVIDIA-L20")).to_have_count(2)

    page.get_by_text("Submit…").click()
    page.get_by_label("Why do prices change?").fill("Power is dearer from January on")
    page.get_by_role("button", name="Submit for approval").click()
    expect(page.get_by_text("You made this list, so somebody else decides on it.")).to_be_visible()
    expect(page.get_by_text("Approve…")).to_have_count(0)
    draft = PriceDraft.objects.get()
    token = page.context.cookies()
    csrf = next(cookie["value"] for cookie in token if cookie["name"] == "csrftoken")
    refused = page.request.post(
        f"/prices/drafts/{draft.pk}/approve/", form={"csrfmiddlewaretoken": csrf}, headers={"Referer": page.url}
    )
    assert refused.status == 403
    assert not PriceVersion.objects.filter(name="2099-01").exists()

    sign_in(page, "ben")
    page.get_by_role("link", name="2099-01").click()
    expect(page.get_by_role("heading", name="Waits for a second person")).to_be_visible()
    page.goto(f"/prices/drafts/{draft.pk}/effect/?month=2026-10")
    # 8 x 9433 s = 20.962222... GPU-hours x 11.5505 = 242.12; tokens 4.00 + 0.5 x 8 and x 10
    expect(page.get_by_role("row", name="NLP Research 217.62 251.12 +33.50 +15.39%")).to_be_visible()
    shot(page, "4-effect")
    page.goto(f"/prices/drafts/{draft.pk}/")
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)
    expect(page.locator("#effect-title")).to_be_visible()
    shot(page, "5-draft-of-the-approver")
    page.get_by_text("Approve…").click()
    page.get_by_label("Note (kept with the approval)").fill("as agreed in the council")
    shot(page, "6-approve")
    page.get_by_role("button", name="Approve and publish").click()
    expect(page.get_by_text("Scheduled", exact=True)).to_be_visible()
    expect(page.get_by_text("as agreed in the council")).to_be_visible()
    shot(page, "7-version")
    version = PriceVersion.objects.get(name="2099-01")
    assert (version.published_by, version.draft.makers) == ("ben", ["ana"])

    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="2026-10 → 2099-01")).to_be_visible()
    expect(page.get_by_role("heading", name="What the price of NVIDIA-H800 is made of")).to_be_visible()
    expect(page.get_by_role("row", name="Hardware — 6.1644 —")).to_be_visible()
    shot(page, "8-compare")


def test_a_team_sees_prices_but_neither_drafts_nor_what_they_cost(page: Page, october: None) -> None:
    factories.person("lea", "lead", team="nlp", password="a long pass phrase")
    person("ana", "finance")
    sign_in(page, "ana")
    page.get_by_role("link", name="New price list").click()
    page.get_by_label("Name").fill("secret-plan")
    page.get_by_role("button", name="Save the draft").click()
    expect(page.get_by_role("heading", name="Draft", exact=True)).to_be_visible()
    draft = PriceDraft.objects.get()
    sign_in(page, "lea")
    expect(page.get_by_text("secret-plan")).to_have_count(0)
    expect(page.get_by_role("link", name="New price list")).to_have_count(0)
    assert page.request.get(f"/prices/drafts/{draft.pk}/").status == 403
    assert page.request.get(f"/prices/compare/?new=d{draft.pk}").status == 404


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(browser: Browser, live_server: Any, october: None, width: int) -> None:
    person("ana", "finance")
    context = browser.new_context(base_url=live_server.url, viewport={"width": width, "height": 844})
    page = context.new_page()
    sign_in(page, "ana")
    page.get_by_role("link", name="New price list").click()
    page.get_by_label("Name").fill("2099-01")
    page.get_by_label("Price or sheet 1").fill("12.3456")
    shot(page, f"w{width}-form")
    page.get_by_role("button", name="Save the draft").click()
    expect(page.get_by_role("heading", name="Draft", exact=True)).to_be_visible()
    draft, version = PriceDraft.objects.get(), PriceVersion.objects.get()
    paths = {
        "prices": "/prices/", "draft": f"/prices/drafts/{draft.pk}/", "edit": f"/prices/drafts/{draft.pk}/edit/",
        "effect": f"/prices/drafts/{draft.pk}/effect/?month=2026-10", "version": f"/prices/versions/{version.pk}/",
        "compare": "/prices/compare/",
    }  # fmt: skip
    for name, path in paths.items():
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        shot(page, f"w{width}-{name}")
    context.close()
