"""What a page offers is what its reader may do: no empty crumbs, no approval of one's own, a next step for each role."""

import re
from decimal import Decimal
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve

from billing.invoices.models import Correction, Invoice
from billing.tenancy.models import Membership
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import bill, draft, part, people
from tests.full_scenario import build_scenario, pleasant

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
LINK = re.compile(r'href="(/[^"#]*)')
QUESTIONS = {
    "lead": {"spending/", "search/", "late/", "invoices/<int:pk>/", "disputes/<int:pk>/"},
    "finance": {"close/", "search/", "late/", "recovery/", "invoices/<int:pk>/", "prices/versions/<int:pk>/", "quarantine/"},
    "admin": {"ownership/", "close/", "quarantine/", "sources/", "late/", "prices/versions/<int:pk>/", "prices/drafts/new/"},
    "auditor": {"audit/", "close/", "search/", "prices/versions/<int:pk>/", "invoices/<int:pk>/", "ownership/", "late/"},
}
"""Pages that answer what each role asks: which jobs waste, can we close, what came late, who changed a price, and so on."""


def routes_after_two_clicks(client: Client) -> set[str]:
    """Routes of the portal that two links, the first of them on the start page, lead to."""
    first = {unescape(link) for link in LINK.findall(client.get("/explorer/").content.decode())}
    found = set(first)
    for address in sorted(first):
        if not address.startswith(("/static/", "/account/")) and "as=" not in address:
            found |= {unescape(link) for link in LINK.findall(client.get(address).content.decode())}
    return {resolve(urlsplit(address).path).route for address in found if not address.startswith("/static/")}


@pytest.mark.parametrize("who", sorted(QUESTIONS))
def test_what_each_role_asks_is_answered_within_two_clicks_of_the_start(tmp_path: Path, who: str) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    end = "2026-10-20T01:00:00Z"
    mine = scenario.invoice.lines.exclude(namespace="")[0].namespace
    hour = {"started_at": "2026-10-20T00:00:00Z", "ended_at": end, "observed_until": end}
    ingest_allocations(allocation_record(77, namespace=mine, **hour))
    assert QUESTIONS[who] - routes_after_two_clicks(signed_in(who)) == set()


def test_nobody_is_offered_to_approve_what_they_asked_for(tmp_path: Path) -> None:
    people()
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    bill()
    correction = draft(part("5.00"))
    approve = f'action="/corrections/{correction.pk}/approve/"'
    asked, other = (signed_in(name).get("/corrections/").content.decode() for name in ("sam", "lea"))
    assert (approve in asked, "Somebody else approves it." in asked) == (False, True)
    assert (approve in other, "Somebody else approves it." in other) == (True, False)
    refused = signed_in("sam").post(f"/corrections/{correction.pk}/approve/")
    assert (refused.status_code, Correction.objects.get().status) == (409, "draft")
    assert "<form" not in signed_in("viv").get("/corrections/").content.decode().partition("<main")[2]
    assert Correction.objects.get().amount == Decimal("5.00")


def test_nobody_is_offered_to_approve_their_own_change_of_closed_time(tmp_path: Path) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    approve = f'action="/corrections/changes/{scenario.change.pk}/approve/"'
    assert scenario.change.requested_by == "finance"
    Membership.objects.create(user=User.objects.get(username="finance"), role="approver")
    offered = [approve in signed_in(name).get("/corrections/changes/").content.decode() for name in ("finance", "approver")]
    assert offered == [False, True]


def test_whoever_reads_every_team_sees_the_disputes_of_an_invoice(tmp_path: Path) -> None:
    build_scenario(tmp_path, pleasant)
    person("otto", "auditor")
    page = signed_in("otto").get(f"/invoices/{Invoice.objects.get(team__code='nlp').pk}/").content.decode()
    assert 'href="/disputes/' in page.partition("<main")[2]


def test_an_empty_page_sends_a_role_only_where_it_can_go(tmp_path: Path) -> None:
    apply(tmp_path)
    person("tom", "lead", team="nlp")
    for name, role in (("fin", "finance"), ("otto", "auditor"), ("ada", "admin")):
        person(name, role)
    lead = signed_in("tom").get("/corrections/").content.decode()
    assert "is disputed from its page" in lead
    assert "To correct an invoice" not in lead
    assert "To correct an invoice" in signed_in("fin").get("/corrections/").content.decode()
    below = "They are proposed below"
    offered = {name: below in signed_in(name).get("/commitments/").content.decode() for name in ("fin", "otto", "tom")}
    assert offered == {"fin": True, "otto": False, "tom": False}
    refused = signed_in("ada").get("/audit/")
    assert refused.status_code == 403
    assert "Your role does not open this page" in refused.content.decode()
