"""The tasks of people who look after all teams: recovery and months compared, agents and sources, correct and replay, who
changed what and why. In both languages, on a desk and on a phone."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create
from billing.usage.models import QuarantinedRecord
from billing.usage.services.watermarks import agent_notes_add, watch_notes_add, watermark_advance
from metering.intervals import Interval
from tests.factories import ingest_tokens, token_record
from tests.factories.browser_tasks import Person, come, language, scenario, size
from tests.full_scenario import Scenario

__all__ = ["come", "language", "scenario", "size"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_finance_compares_pools_and_months_and_takes_the_figures_along(come: Any, scenario: Scenario) -> None:
    finance: Person = come("finance")
    finance.follow("Recovery")
    finance.page.goto("/recovery/?month=2026-10")
    finance.reads("Token price against cost")
    finance.reads("Months compared")
    finance.station("recovery")
    with finance.page.expect_download() as download:
        finance.page.locator("a[href*='table=pools'][href*='as=csv']").click()
    assert "NVIDIA-H800" in Path(download.value.path()).read_text("utf-8-sig")
    finance.page.goto("/spending/?month=2026-10&by=accelerator")
    finance.station("spending")
    finance.page.get_by_role("link", name="NVIDIA-A800").first.click()
    finance.station("spending-filtered")
    finance.follow("Search")
    finance.page.get_by_role("searchbox").first.fill(str(scenario.note.number))
    finance.press("Find")
    finance.follow(str(scenario.note.number))
    finance.reads("Integrity")


def test_an_admin_sees_who_is_alive_and_puts_a_refused_record_right(come: Any, scenario: Scenario) -> None:
    now = timezone.now()
    watermark_advance(agent="agent-1", cluster="hq-1", watermark=now - timedelta(minutes=2))
    watermark_advance(agent="agent-2", cluster="bj-2", watermark=now - timedelta(hours=5))
    gap = Interval(now - timedelta(hours=3), now - timedelta(hours=1))
    watch_notes_add(agent="agent-1", cluster="hq-1", kind="unwatched", stretches=[gap])
    agent_notes_add(agent="agent-1", cluster="hq-1", kind="unknown", notes={"example.com/fpga": ""}, now=now)
    api_token_create(name="hq", scopes=["usage:write"], source="litellm-hq", actor="admin")
    numbered = [token_record(100 + at, time=now.isoformat(), sequence=at, sequence_run="r1") for at in (1, 4)]
    ingest_tokens(*numbered, now=now)
    admin: Person = come("admin")
    admin.page.goto("/sources/")
    for text in ("agent-1", "Alive", "Behind", "Own token unused", "example.com/fpga", "2–3"):
        admin.reads(text)
    admin.reads(admin.words("%(n)s h") % {"n": 5})
    admin.station("sources")
    admin.follow("Quarantine")
    admin.unfold("The record as it came")
    admin.page.locator("main").get_by_role("link", name=admin.words("Decide"), exact=True).click()
    admin.page.get_by_label("id", exact=True).fill("req-sent-again")
    count = admin.page.get_by_label("input_tokens", exact=True)
    right = count.input_value()
    count.fill("-1")
    why = admin.page.get_by_role("textbox", name=admin.words("Why"), exact=True)
    why.fill("the gateway used an id twice")
    admin.press("Accept")
    expect(admin.page.get_by_role("alert")).to_contain_text("input_tokens")
    admin.station("replay-refused")
    count.fill(right)
    why.fill("the gateway used an id twice")
    admin.send("Accept")
    admin.page.goto("/quarantine/?status=replayed")
    admin.reads("the gateway used an id twice")
    admin.station("taken-in")
    assert QuarantinedRecord.objects.get().status == "replayed"


def test_an_auditor_finds_who_changed_what_and_why(come: Any, scenario: Scenario) -> None:
    auditor: Person = come("auditor")
    auditor.follow("Audit")
    auditor.station("audit")
    auditor.page.locator("select[name=kind]").select_option("exception_waive")
    auditor.page.get_by_role("searchbox").first.fill("finance")
    auditor.press("Show")
    auditor.reads("waiver-1")  # why
    auditor.page.locator("details summary").last.click()
    auditor.station("audit-of-waivers")
    auditor.page.goto("/audit/?kind=mute_put")
    auditor.reads("mute-1")
    with auditor.page.expect_download() as download:
        auditor.page.locator("a[href*='as=xlsx']").click()
    assert Path(download.value.path()).read_bytes().startswith(b"PK")
    auditor.page.goto("/sources/")
    assert auditor.page.locator("main form[method=post]").count() == 0
    acts = set(AuditEntry.objects.filter(actor="auditor").values_list("action", flat=True))
    assert acts <= {"sign_in", "export"}, "who reads changes nothing"
