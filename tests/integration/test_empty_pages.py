"""Every page of an installation in which nothing has happened yet says what to do next."""

import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import get_resolver

from tests.factories import SET_UP, apply, person
from tests.factories.roles import addresses

pytestmark = pytest.mark.django_db
LEADS = re.compile(r'<a [^>]*href=|<code>|<button')
LISTS = (
    "explorer/", "explorer/views/", "inbox/", "overview/", "spending/", "budgets/", "budgets/channels/", "anomalies/",
    "invoices/",
    "search/?q=nothing",
    "corrections/", "corrections/changes/",
    "disputes/", "prices/", "prices/compare/", "prices/policies/", "ownership/", "quarantine/", "sources/",
    "audit/?who=nobody",
    "quarantine/?status=replayed", "commitments/", "late/",
)  # fmt: skip
"""Pages that list something."""
FORMS = {
    "", "explorer/views/new/", "inbox/refresh/", "inbox/digest/",
    "login/", "logout/", "start/", "start/billing/", "healthz", "readyz", "metrics", "planner/", "mcp", "v1/traces",
    "v1/logs",
    "prices/workbench/",
    "prices/workbench/tokens/", "prices/workbench/effect/", "prices/workbench/file/", "prices/workbench/draft/",
    "prices/workbench/tokens/report/", "prices/workbench/tokens/draft/",
    "prices/drafts/new/", "i18n/setlang/", "close/", "recovery/", "mails/", "mails/contacts/", "mails/send/",
    "commitments/drafts/", "budgets/new/", "budgets/channels/store/", "corrections/changes/new/",
    "people/", "people/holdings/", "people/new/", "people/roles/", "people/tokens/",
    "ownership/claim/", "ownership/apply/", "prices/policies/apply/", "ownership/teams/", "ownership/teams/mode/",
    "sources/install/", "sources/install/token/", "version/", "quarantine/cause/", "tokens/", "tokens/new/",
}
"""Pages that are a form or a report of a month, machines' doors, and what is only posted to."""


def test_every_page_without_parameters_is_one_or_the_other() -> None:
    plain = {
        route for route in addresses(get_resolver().url_patterns)
        if "<" not in route and "^" not in route and not route.startswith(("api/", "admin/", "account/"))
    }  # fmt: skip
    assert plain - {address.partition("?")[0] for address in LISTS} - FORMS == set()


@pytest.mark.parametrize("who", ["finance", "admin", "lead"])
def test_an_empty_page_leads_on(tmp_path: Path, client: Client, who: str) -> None:
    apply(tmp_path, ownership=None, consumers=None, platform=None, price_versions=None, teams=SET_UP["teams"])
    client.force_login(person("ann", who, team="nlp" if who == "lead" else None))
    silent = []
    for address in LISTS:
        response = client.get(f"/{address}")
        if response.status_code == 403:
            continue
        text = response.content.decode()
        found = re.findall(r'class="card empty">(.*?)(?=<section|</main>)', text, re.DOTALL)
        if not found:
            silent.append(f"/{address}: no part says that it is empty")
        silent += [f"/{address}: {part[:160]}" for part in found if not LEADS.search(part)]
        silent += [f"/{address}: a mark of its source" for part in found if "`" in part]
    assert silent == [], "\n".join(silent)
