"""Each person's task from the first page, with its clicks counted: in both languages, on a desk and on a phone.

The others: why the bill went up is in `test_why_in_chromium`, a newcomer's first invoice in `test_first_invoice`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from billing.corrections.models import Correction, Dispute
from billing.corrections.services.disputes import Claim, dispute_open, dispute_triage
from billing.inbox.services import findings_refresh
from billing.invoices.selectors import document_of
from billing.tenancy.models import ApiToken, NamespaceOwnership
from billing.usage.models import QuarantinedRecord
from billing.usage.services.watermarks import watermark_advance
from tests.browser.polling import PATIENCE
from tests.browser.walks import MENU, Walk
from tests.factories import money
from tests.factories.browser import SIZES, picture, scenario, signed_in
from tests.full_scenario import Scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db(transaction=True)


def can_i_close(walk: Walk) -> None:
    walk.menu("/close/")
    expect(walk.page.locator(".verdict h2")).to_be_visible()


def decide_a_dispute(walk: Walk) -> None:
    walk.inbox(f"/disputes/{Dispute.objects.latest('id').pk}/")
    walk.page.locator("main [name=text]").fill("the gateway counted once")
    walk.ends("Reject")


def answer_a_record(walk: Walk) -> None:
    walk.menu("/quarantine/")
    walk.click(walk.page.locator("main a[href^='/quarantine/']").filter(has_text=walk.words("Decide")))
    walk.page.get_by_role("textbox", name=walk.words("Why"), exact=True).fill("sent twice")
    walk.ends("Dismiss")


def approve_a_draft(walk: Walk) -> None:
    walk.inbox("/corrections/")
    walk.ends("Approve")


def make_a_token(walk: Walk) -> None:
    walk.menu("/tokens/")
    walk.page.get_by_label(walk.words("Purpose")).fill("dashboard")
    walk.click(walk.page.locator("input[value='invoices:read']"))
    walk.ends("Create token")


def budget_at_risk(walk: Walk) -> None:
    walk.menu("/budgets/")
    walk.click(walk.page.locator("main").get_by_role("link", name="Everything of NLP"))
    expect(walk.page.locator("main .gauge")).to_be_visible()


def silent_agent(walk: Walk) -> None:
    walk.click(walk.page.locator("main .alert.metering a[href='/sources/']"))
    expect(walk.page.locator("main")).to_contain_text("agent-2")


def claim_a_namespace(walk: Walk) -> None:
    walk.inbox("/ownership/claim/")
    walk.page.locator("select[name=team]").select_option("cv")
    walk.click(walk.page.get_by_role("button", name=walk.words("Preview"), exact=True))
    walk.ends("Save")


TASKS: list[tuple[Callable[[Walk], None], str, int, int]] = [
    (can_i_close, "finance", 1, MENU),
    (decide_a_dispute, "finance", 3, MENU),
    (answer_a_record, "admin", 3, MENU),
    (approve_a_draft, "approver", 3, MENU),
    (make_a_token, "finance", 3, MENU),
    (budget_at_risk, "lead", 2, MENU),
    (silent_agent, "admin", 1, 0),
    (claim_a_namespace, "admin", 4, MENU),
]
"""Task, who does it, its clicks on a desk, and how many more on a phone."""


def test_each_task_takes_few_clicks(browser: Browser, live_server: Any, scenario: Scenario) -> None:
    now = timezone.now()
    watermark_advance(agent="agent-1", cluster="hq-1", watermark=now)
    watermark_advance(agent="agent-2", cluster="bj-2", watermark=now - timedelta(hours=5))
    lines = document_of(scenario.invoice)["lines"]
    line = next(at for at, one in enumerate(lines, 1) if at > 2 and money(one["amount"]) > 1)
    claim = Claim(str(scenario.invoice.number), [line], "sla", "too much", "INC-9", money("1.00"))
    dispute = dispute_open(claim=claim, actor="lead", now=now)
    dispute_triage(dispute_id=dispute.pk, actor="finance", now=now, text="looked at")
    findings_refresh(now=now)
    walks = [(language, size) for language in ("en", "zh-hans") for size in SIZES]
    for language, size in walks:
        for task, who, clicks, more in TASKS:
            page = signed_in(browser, live_server.url, who)
            page.context.add_cookies([{"name": "django_language", "value": language, "url": live_server.url}])
            page.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
            page.set_default_timeout(PATIENCE * 1000)
            page.goto("/", wait_until="domcontentloaded")
            walk = Walk(page, language, phone=size == "phone", decides=(language, size) == walks[-1])
            task(walk)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            picture(page, f"{task.__name__}-{language}-{size}")
            page.context.close()
            assert (walk.clicks <= clicks + (more if walk.phone else 0), wide <= 0) == (True, True), (task.__name__, size)
    assert Dispute.objects.get(pk=dispute.pk).status == "rejected"
    assert QuarantinedRecord.objects.get().status == "dismissed"
    assert ApiToken.objects.get().name == "dashboard"
    assert NamespaceOwnership.objects.filter(team__code="cv", namespace="nobodys-1").exists()
    assert Correction.objects.filter(status="approved").count() == 1
