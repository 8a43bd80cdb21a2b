"""From nothing to the first invoice in Chromium: everything by button but the command that installs an agent, whose reports
are sent over HTTP as it would. In English on a desk, in Chinese on a phone."""

import json
import re
from datetime import timedelta
from typing import Any
from urllib.request import Request, urlopen

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from billing.closing.services.operations import operation_run, operations_pending
from billing.invoices.models import Invoice
from metering.intervals import billing_month, month_of
from tests.factories import allocation_record, person, token_record
from tests.factories.browser_tasks import Person, come

__all__ = ["come"]
pytestmark = pytest.mark.django_db(transaction=True)
ZONE = "Asia/Shanghai"
MOST_CLICKS = 50
"""Trusted clicks of three people, from the empty page to the invoice; choices in lists and keys are not counted."""


@pytest.fixture
def scenario() -> None:
    """Nothing but the account that the installation came with."""
    person("ada", "admin")


def report(site: str, token: str, path: str, body: Any) -> None:
    """What an agent sends."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = Request(f"{site}/api/v1/usage/{path}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=60) as answer:
        assert answer.status < 300


def counted(who: Person, clicks: list[str]) -> Person:
    """The same person, each of whose clicks is noted."""
    who.page.expose_function("noteClick", lambda: clicks.append(who.who))
    who.page.add_init_script("addEventListener('click', event => { if (event.isTrusted) noteClick() }, true)")
    return who


def installed(ada: Person, link: str, name: str) -> str:
    """The token in the commands for a cluster or gateway."""
    ada.follow("First steps")
    ada.follow(link)
    ada.field("Name of the cluster, gateway or reader").fill(name)
    ada.send("Create token and configuration")
    ada.station(f"install-{name}")
    found = re.search(r"spn_[\w-]+", ada.page.locator("pre.command").first.inner_text())
    assert found is not None
    return found.group()


def account(ada: Person, name: str, role: str) -> None:
    """A colleague with a role, and the password that is shown once."""
    ada.follow("People and access")
    ada.field("User name").fill(name)
    ada.send("Invite")
    password = ada.page.locator("section[role=status] code").first.inner_text()
    assert User.objects.get(username=name).check_password(password)
    ada.page.locator("select[name=user_id]").select_option(label=name)
    ada.page.locator("select[name=role]").select_option(role)
    ada.send("Give role")


def keeps_its_focus(ada: Person) -> None:
    """The steps are looked at again every few seconds; whoever is at a link of them with the keyboard stays there."""
    steps, link = ada.page.locator("section[aria-labelledby=steps-title]"), ada.page.locator("main a[href*=workbench]")
    link.focus()
    steps.evaluate("it => { it.dataset.seen = 1; }")
    expect(steps).not_to_have_attribute("data-seen", "1")
    expect(link).to_be_focused()


def a_worker_does_what_waits() -> None:
    for operation in operations_pending():
        operation_run(operation_id=operation)


@pytest.mark.parametrize(("language", "size"), [("en", "desk"), ("zh-hans", "phone")])
def test_a_newcomer_gets_from_nothing_to_the_first_invoice(come: Any, live_server: Any) -> None:
    clicks: list[str] = []
    now = timezone.now()
    month = month_of(billing_month(month_of(now, ZONE), ZONE).start - timedelta(days=1), ZONE)
    window = billing_month(month, ZONE)
    start = window.start + timedelta(days=9)

    ada = counted(come("ada"), clicks)
    ada.follow("First steps")
    ada.field("Issuer").fill("AI-INFRA")
    ada.station("start")
    ada.send("Begin")

    token = installed(ada, "Token and commands for the agent", "hq-1")
    times = {"started_at": start.isoformat(), **dict.fromkeys(("ended_at", "observed_until"),
                                                           (start + timedelta(hours=10)).isoformat())}  # fmt: skip
    sent = {"agent": {"name": "gpu-agent", "cluster": "hq-1"}, "allocations": [allocation_record(1, **times)]}
    report(live_server.url, token, "gpu-allocations", {**sent, "watermark": now.isoformat()})
    token = installed(ada, "Token and commands for the gateway", "litellm-hq")
    counts = {"cache_read_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
    event = token_record(1, time=start.isoformat(), input_tokens=1_000_000, **counts)
    report(live_server.url, token, "tokens", [event])

    ada.follow("First steps")
    ada.follow("Who used something, and who pays for it")
    ada.station("unowned")
    ada.page.locator("a[href*='/ownership/claim/'][href*=namespace]").first.click()
    ada.field("Code of the new team").fill("nlp")
    ada.send("Preview")
    ada.station("preview")
    ada.send("Save")
    ada.page.locator("a[href*='/ownership/claim/'][href*=consumer]").first.click()
    ada.page.locator("select[name=team]").select_option("nlp")
    ada.send("Preview")
    ada.send("Save")

    ada.follow("First steps")
    ada.follow("Draft a price list")
    ada.page.locator("input[name=gpu_value]").first.fill("10.00")
    ada.page.locator("input[name=tokens_input]").first.fill("2.00")
    for name in ("tokens_cache_read", "tokens_cache_creation", "tokens_output", "tokens_reasoning"):
        box = ada.page.locator(f"input[name={name}]")
        if box.count():
            box.first.fill("1.00")
    ada.field("Why do prices change?").fill("the first list")
    ada.station("prices")
    ada.send("Save the draft")
    ada.unfold("Submit…")
    ada.send("Submit for approval")
    ada.follow("First steps")
    ada.reads("Nobody else may approve yet.")
    ada.reads("Nobody has that role yet.")
    ada.station("who-is-missing")
    keeps_its_focus(ada)
    account(ada, "wang", "approver")
    account(ada, "li", "finance")

    wang = counted(come("wang"), clicks)
    wang.follow("Inbox")
    wang.station("inbox")
    wang.page.locator("main a[href*='/prices/drafts/']").first.click()
    wang.unfold("Approve…")
    wang.page.locator("details[open] textarea[name=reason]").fill("as the cost sheet says")
    wang.station("approve-prices")
    wang.send("Approve and publish")

    li = counted(come("li"), clicks)
    li.page.goto(f"/close/?month={month}")
    li.reads("Yes. Everything adds up and nothing blocks the close.")
    li.unfold("Close…")
    li.page.locator("form:has(input[value=close]) button").click()
    li.reads("waiting for a worker")
    a_worker_does_what_waits()
    li.unfold("Issue…")
    li.station("issue")
    li.page.locator("form:has(input[value=issue]) button").click()
    li.reads("waiting for a worker")
    a_worker_does_what_waits()
    expect(li.page.locator(".operation[hx-get]")).to_have_count(0)  # else its last answer loads the page that is left again
    li.follow("Invoices")
    li.reads("AI-INFRA-")
    li.station("first-invoice")

    invoice = Invoice.objects.get()
    assert (invoice.team.code, invoice.status, str(invoice.total)) == ("nlp", "issued", "802.00")  # 8 x 10 h x 10, 1 M x 2
    ada.follow("First steps")
    ada.reads("All there.")
    assert len(clicks) <= MOST_CLICKS, len(clicks)
