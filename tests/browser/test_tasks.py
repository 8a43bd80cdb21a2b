"""What each kind of person comes for, done in real Chromium in both languages, on a desk and on a phone.

`SUANPAN_SCREENSHOTS=DIR` keeps a picture of every station, for people to look at. A text is named here in English and found
on the page in the language of the walk, so a text without Chinese fails its walk.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from billing.budgets.models import Budget
from billing.corrections.models import Dispute
from billing.rates.models import PriceDraft
from billing.usage.models import QuarantinedRecord
from tests.factories.browser_tasks import come, language, scenario, size
from tests.full_scenario import Scenario

__all__ = ["come", "language", "scenario", "size"]
pytestmark = pytest.mark.django_db(transaction=True)
CHANGES_NOTHING = {"/logout/", "/i18n/setlang/", "/close/2026-10/focus/"}
"""What a reader may post: leave, choose a language, have the files of a month made."""


def test_a_lead_knows_what_was_spent_on_what_and_where_it_ends(come: Any, scenario: Scenario) -> None:
    lead = come("lead")
    lead.reads("NLP Research")
    lead.station("month")
    lead.follow("NLP Research")
    lead.reads("Efficiency by job")  # which jobs waste
    lead.reads("Penalty")
    lead.station("team")
    lead.follow("Budgets")
    lead.station("budgets")
    lead.follow("Everything of NLP")
    lead.reads("Spend to date")
    lead.station("budget")
    lead.field("One mail address or channel per line").fill("mei@example.cn")
    lead.send("Save")
    expect(lead.field("One mail address or channel per line")).to_have_value("mei@example.cn")
    lead.unfold("Change the thresholds")
    lead.field("Percent of spending").fill("60, 90")
    lead.field("Percent of the forecast").fill("110")
    lead.send("Save the thresholds")
    expect(lead.page.locator("main")).to_contain_text("110%")
    lead.station("thresholds")
    assert (Budget.objects.get().thresholds, Budget.objects.get().forecast_thresholds) == ([60, 90], [110])
    assert list(Budget.objects.get().channels.values_list("mail", flat=True)) == ["mei@example.cn"]
    lead.follow("Anomalies")
    lead.reads("NVIDIA-A800")
    lead.station("anomalies")


def test_a_lead_downloads_the_invoice_and_disputes_a_line(come: Any, scenario: Scenario) -> None:
    lead = come("lead")
    lead.follow("Invoices")
    lead.station("invoices")
    lead.follow(str(scenario.invoice.number))
    lead.station("invoice")
    with lead.page.expect_download() as download:
        lead.page.get_by_role("link", name="PDF").click()
    assert Path(download.value.path()).read_bytes().startswith(b"%PDF-1.7")
    lead.page.get_by_role("link", name="llama-3-8b").first.click()  # the reason of a line is one click away
    lead.reads("Price version")
    lead.station("reason-of-a-line")
    lead.page.go_back()
    lead.follow("Dispute lines")
    lead.page.get_by_role("row").filter(has_text="llama-3-8b").filter(has_text="4.00").first.get_by_role("checkbox").check()
    lead.field("What is wrong").fill("the gateway counted twice")
    lead.field("Evidence: link, ticket, figures").fill("INC-77")
    lead.station("dispute-form")
    lead.press("Open the dispute")
    lead.reads("the gateway counted twice")
    lead.station("dispute")
    assert Dispute.objects.latest("id").opened_by == "lead"
    lead.follow("Disputes")
    lead.station("disputes")


def test_finance_asks_whether_the_month_can_close_and_finds_the_reason_of_an_amount(come: Any, scenario: Scenario) -> None:
    finance = come("finance")
    finance.station("month")
    finance.page.goto("/close/?month=2026-11")
    finance.reads("Namespace without owner")
    finance.reads("nobodys-1")
    finance.station("close-november")
    finance.page.goto("/close/?month=2026-10")
    finance.reads("Where the GPU time went")  # recovery of each pool
    finance.station("close-october")
    finance.follow("Invoices")
    finance.page.get_by_role("searchbox").first.fill("000002")
    finance.press("Find")
    finance.follow(str(scenario.invoice.number))
    finance.press("Prove that this document follows from its usage")
    expect(finance.page.locator("#proof .pill.ok")).to_have_text(finance.words("Proven"))
    finance.station("proof")
    finance.page.goto("/?month=2026-10")
    finance.follow("NLP Research")
    expect(finance.page).to_have_url(re.compile("/teams/nlp/"))
    finance.page.get_by_role("link", name="NVIDIA-H800").first.click()
    finance.reads("workload-1")
    finance.station("line")
    finance.page.get_by_role("link", name="workload-1").first.click()
    finance.page.wait_for_url(re.compile("workload="))
    finance.station("line-of-a-job")


def test_finance_approves_nothing_alone_and_exports_a_note(come: Any, scenario: Scenario) -> None:
    finance = come("finance")
    finance.follow("Corrections")
    finance.station("corrections")
    finance.reads("Somebody else approves it.")
    expect(finance.page.get_by_role("button", name=finance.words("Approve"))).to_have_count(0)
    finance.follow(str(scenario.note.number))
    with finance.page.expect_download() as download:
        finance.page.get_by_role("link", name="Excel").click()
    assert Path(download.value.path()).read_bytes().startswith(b"PK")
    finance.station("note")
    finance.page.goto("/corrections/changes/")
    finance.station("changes")
    finance.page.goto(f"/disputes/{scenario.dispute.pk}/")
    finance.station("dispute")


def test_an_admin_sends_a_price_list_to_approval_and_decides_on_what_could_not_be_taken_in(
    come: Any, scenario: Scenario
) -> None:
    admin = come("admin")
    admin.follow("Prices")
    admin.station("prices")
    admin.follow("draft-1")
    admin.station("draft")
    admin.page.goto(f"/prices/drafts/{scenario.draft.pk}/effect/?month=2026-10")
    admin.station("effect")
    admin.page.goto("/prices/drafts/new/")
    admin.station("new-list")
    admin.follow("Ownership")
    admin.reads("nlp-*")
    admin.station("ownership")
    admin.follow("Quarantine")
    admin.page.locator("main").get_by_role("link", name=admin.words("Decide"), exact=True).click()
    admin.page.get_by_role("textbox", name=admin.words("Why"), exact=True).fill("sent twice by a test")
    admin.station("quarantine")
    admin.send("Dismiss")
    admin.page.goto("/quarantine/?status=dismissed")
    admin.reads("sent twice by a test")
    assert QuarantinedRecord.objects.get().status == "dismissed"
    admin.follow("Price workbench")
    admin.station("workbench")
    admin.follow("Training planner")
    admin.station("planner")
    assert PriceDraft.objects.count() == 1


def test_an_auditor_reads_everything_and_is_offered_no_change(come: Any, scenario: Scenario) -> None:
    auditor = come("auditor")
    for address in ("/?month=2026-10", "/close/?month=2026-10", f"/invoices/{scenario.invoice.pk}/", "/corrections/",
                    "/corrections/changes/", f"/disputes/{scenario.dispute.pk}/", f"/budgets/{Budget.objects.get().pk}/",
                    "/quarantine/", "/prices/", f"/prices/drafts/{scenario.draft.pk}/", "/ownership/"):  # fmt: skip
        auditor.page.goto(address)
        forms = auditor.page.locator("form[method=post]").all()
        actions = [form.get_attribute("action") for form in forms]
        assert set(actions) <= CHANGES_NOTHING | {f"/invoices/{scenario.invoice.pk}/proof/"}, address
        auditor.station(address.strip("/").split("/")[0].split("?")[0] or "month")
