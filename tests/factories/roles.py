"""Every address of the portal and the API, and what each role gets there."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver

from billing.budgets.models import Budget, CostAnomaly
from billing.closing.services.closing import period_close
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.corrections.services.disputes import Claim, dispute_open
from billing.corrections.services.retroactive import retroactive_propose
from billing.invoices.models import Invoice, Note, Operation
from billing.invoices.services.invoices import invoices_issue
from billing.rates.models import PriceVersion
from billing.rates.services import price_draft_create
from billing.rating.models import RetroactiveChange
from billing.tenancy.models import Team
from tests import factories

WHO = ("nobody", "other", "viewer", "lead", "finance", "approver", "admin", "auditor")
OPEN = dict.fromkeys(WHO, 200)
OWN = {**OPEN, "nobody": 302, "other": 404}  # of team nlp: "other" belongs to cv, "nobody" is not signed in
SIGNED_IN = {**OPEN, "nobody": 302}
STAFF = {**SIGNED_IN, "other": 403, "viewer": 403, "lead": 403}


def only(*roles: str, status: int = 302, refused: int = 403) -> dict[str, int]:
    return {**dict.fromkeys(WHO, refused), "nobody": 302, **dict.fromkeys(roles, status)}


READERS = ("finance", "approver", "admin", "auditor")
API = {"nobody": 401, "other": 404, "viewer": 200, "lead": 200, **dict.fromkeys(READERS, 200)}
LIST = {**API, "other": 200}
REPORT = {**API, "viewer": 404, "lead": 404}
COSTS = {**dict.fromkeys(WHO, 403), "nobody": 401, **dict.fromkeys(READERS, 200)}
BAD_REQUEST = {**dict.fromkeys(WHO, 400), "nobody": 401}
STAFF_API = {**API, "other": 403, "viewer": 403, "lead": 403}
WRITE = {**dict.fromkeys(WHO, 403), "nobody": 401}
HOLDERS = {**only("lead", "finance", "admin"), "other": 404}  # of team nlp's budgets
MISSING = {**only("lead", "finance", "admin", status=404), "other": 404}
WRONG = {**only("lead", "finance", "admin", status=400), "other": 404}
# address: (method, expected status by role); {values} are filled in by the test
MATRIX: dict[str, tuple[str, dict[str, int]]] = {
    "healthz": ("GET", OPEN),
    "readyz": ("GET", OPEN),
    "metrics": ("GET", OPEN),
    "login/": ("GET", {**dict.fromkeys(WHO, 302), "nobody": 200}),
    "i18n/setlang/": ("POST", dict.fromkeys(WHO, 302)),
    "logout/": ("POST", dict.fromkeys(WHO, 302)),
    "": ("GET", dict.fromkeys(WHO, 302)),  # to the explorer
    "explorer/": ("GET", SIGNED_IN),
    "explorer/views/": ("GET", SIGNED_IN),
    "explorer/views/new/": ("POST", {**dict.fromkeys(WHO, 400), "nobody": 302}),  # says nothing
    "explorer/views/<int:pk>/end/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),  # none is there
    "explorer/views/<int:pk>/reports/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),
    "explorer/reports/<int:pk>/end/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),
    "inbox/": ("GET", SIGNED_IN),
    "inbox/refresh/": ("POST", {**only("finance", "approver", "admin", "auditor")}),
    "inbox/digest/": ("POST", {**dict.fromkeys(WHO, 409), "nobody": 302}),  # says nothing
    "overview/": ("GET", SIGNED_IN),
    "start/": ("GET", only("admin", status=200)),
    "start/billing/": ("POST", only("admin", status=409)),  # the set-up exists
    "search/": ("GET", SIGNED_IN),
    "audit/": ("GET", {**STAFF, "admin": 403}),
    "late/": ("GET", SIGNED_IN),
    "spending/": ("GET", SIGNED_IN),
    "recovery/": ("GET", STAFF),
    "teams/<str:code>/": ("GET", OWN),
    "teams/<str:code>/lines/<str:digest>/": ("GET", OWN),
    "teams/<str:code>/evidence/": ("GET", {**dict.fromkeys(WHO, 404), "nobody": 302}),  # nothing was judged there
    "invoices/": ("GET", SIGNED_IN),
    "invoices/documents-<str:month>.zip": ("GET", {**SIGNED_IN, "other": 409}),  # nothing is issued for that team
    "invoices/<int:pk>/": ("GET", OWN),
    "invoices/<int:pk>/proof/": ("POST", STAFF),
    "invoices/<int:pk>/download.<str:kind>": ("GET", OWN),
    "mails/": ("GET", STAFF),
    "mails/contacts/": ("POST", only("finance", status=409)),  # names no team
    "mails/contacts/<int:pk>/end/": ("POST", only("finance", status=409)),  # none is there
    "mails/send/": ("POST", only("finance", status=409)),  # names no document
    "mails/<int:pk>/resend/": ("POST", only("finance", status=409)),
    "corrections/": ("GET", SIGNED_IN),
    "corrections/changes/": ("GET", SIGNED_IN),
    "corrections/changes/new/": ("POST", only("finance", status=409)),
    "corrections/changes/<int:pk>/<str:step>/": ("POST", {**dict.fromkeys(WHO, 409), "nobody": 302, "other": 404}),
    "corrections/new/<int:pk>/": ("GET", only("finance", status=200)),
    "corrections/<int:pk>/<str:step>/": ("POST", only("finance", status=409)),
    "disputes/": ("GET", SIGNED_IN),
    "disputes/new/<int:pk>/": ("GET", {**OWN, "viewer": 403, "approver": 403, "admin": 403, "auditor": 403}),
    "disputes/<int:pk>/": ("GET", OWN),
    "disputes/<int:pk>/<str:step>/": ("POST", {**dict.fromkeys(WHO, 409), "nobody": 302, "other": 404}),
    "notes/<int:pk>/": ("GET", OWN),
    "notes/<int:pk>/download.<str:kind>": ("GET", OWN),
    "commitments/": ("GET", SIGNED_IN),
    "commitments/drafts/": ("POST", only("finance", "admin", status=409)),  # an empty form
    "commitments/drafts/<int:pk>/<str:step>/": ("POST", only("finance", "admin", status=409)),  # none is there
    "budgets/": ("GET", SIGNED_IN),
    "budgets/new/": ("GET", only("lead", "other", "finance", "admin", status=200)),  # leads for their own teams
    "budgets/channels/": ("GET", only("finance", "admin", status=200)),
    "budgets/channels/store/": ("POST", only("admin", status=409)),  # an empty form
    "budgets/channels/<int:pk>/test/": ("POST", only("finance", "admin", status=404)),  # none is there
    "budgets/<int:pk>/": ("GET", OWN),
    "budgets/<int:pk>/change/": ("GET", {**only("lead", "finance", "admin", status=200), "other": 404}),
    "budgets/<int:pk>/changes/<int:change_pk>/<str:step>/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),
    "budgets/<int:pk>/recipients/": ("POST", HOLDERS),
    "budgets/<int:pk>/thresholds/": ("POST", HOLDERS),
    "budgets/<int:pk>/mute/": ("POST", WRONG),  # without a reason
    "budgets/<int:pk>/mutes/<int:mute_pk>/end/": ("POST", MISSING),
    "budgets/<int:pk>/override/": ("POST", WRONG),  # without an amount
    "budgets/<int:pk>/overrides/<int:override_pk>/<str:step>/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),
    "anomalies/": ("GET", SIGNED_IN),
    "anomalies/<int:pk>/feedback/": ("POST", MISSING),  # an empty form
    "close/": ("GET", STAFF),
    "close/<str:month>/meters/": ("POST", only("finance", status=409)),  # names no cluster
    "close/<str:month>/accrual/": ("POST", only("finance", status=409)),  # the month is closed
    "close/<str:month>/operations/": ("POST", only("finance")),
    "close/<str:month>/waivers/": ("POST", only("finance", status=409)),  # names no exception
    "close/<str:month>/waivers/cause/": ("POST", only("finance", status=409)),  # names no exception
    "close/<str:month>/journal/": ("POST", only("finance", status=409)),  # nothing was exported
    "close/<str:month>/journal/file/": ("POST", only("finance", status=200)),
    "close/<str:month>/focus/": ("POST", STAFF),
    "close/<str:month>/reopenings/": ("POST", only("finance", status=409)),  # closed months stay closed here
    "close/<str:month>/approve/": ("POST", only("approver")),  # whose role it is; nothing waits there
    "operations/<int:pk>/": ("GET", STAFF),
    "prices/": ("GET", SIGNED_IN),
    "prices/compare/": ("GET", SIGNED_IN),
    "prices/policies/": ("GET", STAFF),
    "prices/policies/look/<str:kind>/": ("POST", only("admin", status=409)),  # an empty form
    "prices/policies/apply/": ("POST", only("admin", status=409)),
    "prices/workbench/": ("GET", STAFF),
    "prices/workbench/effect/": ("GET", STAFF),
    "prices/workbench/file/": ("POST", {who: 400 if status == 200 else status for who, status in STAFF.items()}),  # none
    "prices/workbench/draft/": ("POST", only("finance", "admin", status=400)),
    "prices/workbench/tokens/": ("GET", STAFF),
    "prices/workbench/tokens/report/": ("POST", {who: 400 if status == 200 else status for who, status in STAFF.items()}),
    "prices/workbench/tokens/draft/": ("POST", only("finance", "admin", status=400)),
    "planner/": ("GET", SIGNED_IN),
    "prices/versions/<int:pk>/": ("GET", SIGNED_IN),
    "prices/drafts/new/": ("GET", only("finance", "admin", status=200)),
    "prices/drafts/<int:pk>/": ("GET", STAFF),
    "prices/drafts/<int:pk>/edit/": ("GET", only("finance", "admin", status=200)),
    "prices/drafts/<int:pk>/effect/": ("GET", STAFF),
    "prices/drafts/<int:pk>/<str:step>/": ("POST", only("finance", "admin", status=400)),
    "prices/<str:kind>-<int:pk>.yaml": ("GET", STAFF),
    "ownership/": ("GET", SIGNED_IN),
    "ownership/teams/": ("GET", SIGNED_IN),
    "ownership/teams/mode/": ("POST", only("approver", status=409)),  # an empty form
    "ownership/claim/": ("GET", only("admin", status=200)),
    "ownership/look/<str:kind>/": ("POST", only("admin", status=409)),  # an empty form
    "ownership/apply/": ("POST", only("admin", status=409)),
    "sources/": ("GET", STAFF),
    "sources/install/": ("GET", only("admin", status=200)),
    "sources/install/token/": ("POST", only("admin", status=409)),  # an empty form
    "version/": ("GET", only("admin", status=200)),
    "people/": ("GET", only("admin", status=200)),
    "people/holdings/": ("GET", {**STAFF, "admin": 403}),
    "people/new/": ("POST", only("admin", status=409)),  # an empty form
    "people/roles/": ("POST", only("admin", status=409)),  # an empty form
    "people/roles/<int:pk>/end/": ("POST", only("admin")),  # a role that is gone stays gone
    "people/tokens/": ("POST", only("admin", status=409)),  # an empty form
    "people/tokens/<int:pk>/<str:step>/": ("POST", only("admin", status=404)),  # none is there
    "people/<int:pk>/<str:step>/": ("POST", only("admin", status=404)),  # no such step
    "tokens/": ("GET", SIGNED_IN),
    "tokens/new/": ("POST", {**dict.fromkeys(WHO, 409), "nobody": 302}),  # an empty form
    "tokens/<int:pk>/<str:step>/": ("POST", {**dict.fromkeys(WHO, 404), "nobody": 302}),  # none is there
    "quarantine/": ("GET", STAFF),
    "quarantine/cause/": ("POST", only("admin", status=409)),  # names no cause
    "quarantine/<int:pk>/": ("GET", {**only(*READERS, status=404)}),  # none is there
    "api/v1/schema/": ("GET", OPEN),
    "api/v1/version": ("GET", LIST),
    "api/v1/usage/tokens": ("POST", WRITE),
    "api/v1/usage/gpu-allocations": ("POST", WRITE),
    "api/v1/usage/capacity": ("POST", WRITE),
    "api/v1/usage/efficiency": ("POST", WRITE),
    "api/v1/usage/watermarks": ("POST", WRITE),
    "api/v1/usage/litellm": ("POST", WRITE),
    "api/v1/usage/kong": ("POST", WRITE),
    "api/v1/usage/apisix": ("POST", WRITE),
    "api/v1/usage/engine-counters": ("POST", WRITE),
    "api/v1/events": ("POST", WRITE),
    "api/v1/events/batch": ("POST", WRITE),
    "v1/traces": ("POST", WRITE),
    "v1/logs": ("POST", WRITE),
    "mcp": ("POST", dict.fromkeys(WHO, 401)),  # asks for a token
    "api/v1/budgets": ("GET", LIST),
    "api/v1/budgets/check": ("GET", WRITE),
    "api/v1/^budgets/authorize(?P<client_path>/.*)?$": ("GET", WRITE),
    "api/v1/budgets/reservations": ("POST", WRITE),
    "api/v1/^budgets/reservations/(?P<identity>[0-9a-f]{24})$": ("DELETE", WRITE),
    "api/v1/explore": ("GET", LIST),
    "api/v1/metrics": ("GET", LIST),
    "api/v1/inbox": ("GET", LIST),
    "api/v1/usage/summary": ("GET", BAD_REQUEST),  # asked without days
    "api/v1/periods/<str:month>/journal": ("POST", WRITE),
    "api/v1/periods/<str:month>/reopenings": ("POST", {**WRITE, "finance": 400, "approver": 400}),  # an empty form
    "api/v1/periods/<str:month>/meter-readings": ("GET", STAFF_API),
    "api/v1/periods/<str:month>/held-teams": ("GET", LIST),
    "api/v1/quarantine": ("GET", STAFF_API),
    "api/v1/quarantine/<int:pk>": ("POST", WRITE),
    "api/v1/scim/v2/ServiceProviderConfig": ("GET", WRITE),
    "api/v1/scim/v2/ResourceTypes": ("GET", WRITE),
    "api/v1/scim/v2/ResourceTypes/<str:name>": ("GET", WRITE),
    "api/v1/scim/v2/Schemas": ("GET", WRITE),
    "api/v1/scim/v2/Schemas/<str:name>": ("GET", WRITE),
    "api/v1/scim/v2/Users": ("POST", WRITE),
    "api/v1/scim/v2/Users/<int:pk>": ("PATCH", WRITE),
    "api/v1/scim/v2/Groups": ("POST", WRITE),
    "api/v1/scim/v2/Groups/<int:pk>": ("PATCH", WRITE),
    "api/v1/teams": ("GET", LIST),
    "api/v1/teams/<str:code>/organisation": ("GET", API),
    "api/v1/prices": ("GET", LIST),
    "api/v1/commitments": ("GET", LIST),
    "api/v1/commitments/drafts": ("GET", LIST),
    "api/v1/commitments/drafts/<int:pk>/<str:step>": ("POST", {**WRITE, "finance": 409, "admin": 409}),
    "api/v1/price-versions": ("GET", LIST),
    "api/v1/price-versions/<str:name>": ("GET", LIST),
    "api/v1/price-versions/<str:name>/diff": ("GET", LIST),
    "api/v1/price-versions/<str:name>/effect": ("GET", COSTS),
    "api/v1/price-versions/<str:name>/file": ("GET", COSTS),
    "api/v1/price-versions/<str:name>/<str:step>": ("POST", {**WRITE, "finance": 409, "admin": 409}),
    "api/v1/price-drafts": ("GET", COSTS),
    "api/v1/charges": ("GET", LIST),
    "api/v1/invoices": ("GET", LIST),
    "api/v1/^invoices/(?P<number>[^/]+?)(?:\\.(?P<suffix>(?:consumers\\.)?(?:json|csv|xlsx)|pdf))?$": ("GET", API),
    "api/v1/disputes": ("GET", LIST),
    "api/v1/disputes/<int:pk>": ("GET", API),
    "api/v1/credit-notes": ("GET", LIST),
    "api/v1/^credit-notes/(?P<number>[^/]+?)(?:\\.(?P<suffix>json|pdf|csv|xlsx))?$": ("GET", API),
    "api/v1/periods/<str:month>": ("GET", LIST),
    "api/v1/periods/<str:month>/accrual": ("GET", {**dict.fromkeys(WHO, 404), "nobody": 401}),  # none was made
    "api/v1/periods/<str:month>/report": ("GET", {**REPORT, "other": 404}),
    "api/v1/focus/<str:month>": ("GET", {**REPORT, "other": 404}),
    "api/v1/^.*$": ("GET", dict.fromkeys(WHO, 404)),
}


def addresses(patterns: list[Any], prefix: str = "") -> list[str]:
    routes: list[str] = []
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            routes += addresses(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            routes.append(route)
    return routes


@pytest.fixture(scope="module")
def scenario(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A closed and issued month of team nlp; one person per role. Rolled back after this module."""
    with django_db_blocker.unblock():
        atomic = transaction.atomic()
        atomic.__enter__()
        factories.apply(tmp_path_factory.mktemp("scenario"), budgets=[{"team": "nlp", "amount": "1000.00"}])
        factories.ingest_allocations(factories.allocation_record(1))
        period_close(month="2026-10", actor="closer", now=factories.AFTER)
        invoices_issue(month="2026-10", actor="closer", now=factories.AFTER)
        factories.person("viewer", "viewer", team="nlp")
        factories.person("lead", "lead", team="nlp")
        factories.person("other", "lead", team="cv")
        for role in READERS:
            factories.person(role, role)
        note = corrected()
        claim = Claim(str(Invoice.objects.get().number), [1], "sla", "a test")
        dispute = dispute_open(claim=claim, actor="lead", now=factories.AFTER)
        operation = Operation.objects.create(kind="issue", month="2026-10", requested_by="finance", status="done")
        draft = price_draft_create(
            name="later", valid_from=factories.now() + factories.hours(1000), actor="maker", now=factories.now(),
            content={"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11"}]},
        )  # fmt: skip
        version = PriceVersion.objects.get()
        finding = CostAnomaly.objects.create(
            team=Team.objects.get(code="nlp"), kind="gpu", sku="NVIDIA-H800", day="2026-10-10", amount=1, median=1, mad=1,
            z=1, basis="own", found_at=factories.AFTER,
        )  # fmt: skip
        made = {"operation": operation, "note": note, "draft": draft, "version": version, "dispute": dispute,
                "budget": Budget.objects.get(), "finding": finding, "change": proposed_change()}  # fmt: skip
        yield {"invoice": Invoice.objects.get(), **made}
        transaction.set_rollback(True)
        atomic.__exit__(None, None, None)


def proposed_change() -> RetroactiveChange:
    """Another price for October, which reaches team nlp."""
    return retroactive_propose(
        kind="price", name="fix", fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "9"}]}, evidence="",
        valid_from=factories.SHANGHAI_OCTOBER[0], valid_until=None, reason="a test", actor="finance", now=factories.AFTER,
    )  # fmt: skip


def corrected() -> Note:
    """One yuan of the invoice, credited."""
    wanted = Wanted("goodwill", "a test", "", "finance", factories.AFTER)
    number = str(Invoice.objects.get().number)
    correction = credit_note_draft(number=number, credits=[LineCredit(1, Decimal("1"))], wanted=wanted)
    correction_approve(correction_id=correction.pk, actor="approver", now=factories.AFTER)
    correction_issue(correction_id=correction.pk, actor="finance", now=factories.AFTER)
    return Note.objects.get()


def reached(client: Client, route: str, scenario: dict[str, Any]) -> Any:
    """What a route answers; whatever it did is taken back."""
    method, address = MATRIX[route][0], "/" + filled(route, scenario)
    with transaction.atomic():
        if route.endswith("/operations/"):
            answer = client.post(address, {"kind": "issue"})
        else:
            answer = client.generic(method, address)
        if answer.streaming:
            list(answer)  # a file that nobody reads stays open
        transaction.set_rollback(True)
    return answer


def filled(route: str, scenario: dict[str, Any]) -> str:
    """The address with values of team nlp in place of its parameters."""
    from billing.portal.months import period_shown
    from billing.portal.statements import month_statements
    from billing.tenancy.models import BillingSetup

    if "lines/" in route:
        period = period_shown("2026-10", BillingSetup.objects.get())
        statements = month_statements(period, Team.objects.filter(code="nlp")).statements
        return f"teams/nlp/lines/{statements[0].lines[0].digest}/?month=2026-10"
    if "^invoices" in route:
        return f"api/v1/invoices/{scenario['invoice'].number}"
    if "^credit-notes" in route:
        return f"api/v1/credit-notes/{scenario['note'].number}"
    if "^budgets/authorize" in route:
        return "api/v1/budgets/authorize"
    if "^budgets" in route:
        return f"api/v1/budgets/reservations/{'0' * 24}"
    if "^.*$" in route:
        return "api/v1/nothing-here"
    if route.endswith("/diff"):
        route += "?against=2026-10"
    objects = {"corrections/changes/": scenario["change"].pk,
             "operations/": scenario["operation"].pk, "notes/": scenario["note"].pk, "mails/": 0,
             "corrections/new/": scenario["invoice"].pk,
             "corrections/": scenario["note"].correction_id, "prices/drafts/": scenario["draft"].pk,
             "prices/": scenario["version"].pk, "disputes/new/": scenario["invoice"].pk, "disputes/": scenario["dispute"].pk,
             "api/v1/disputes/": scenario["dispute"].pk, "budgets/": scenario["budget"].pk,
             "anomalies/": scenario["finding"].pk,
             }  # fmt: skip
    pk = next((value for prefix, value in objects.items() if route.startswith(prefix)), scenario["invoice"].pk)
    steps = {"price": "submit", "dispute": "evidence", "changes": "reject", "commitment": "withdraw"}
    step = next((word for part, word in steps.items() if part in route), "void")
    values = {
        "<str:step>": step,
        "<str:code>": "nlp", "<int:pk>": str(pk),
        "<str:kind>-": "version-", "<str:kind>": "csv", "<str:month>": "2026-10", "<str:name>": "2026-10",
        "<int:mute_pk>": "1", "<int:override_pk>": "1", "<int:change_pk>": "1",
    }  # fmt: skip
    values |= {"<str:kind>": "carbon" if "policies/" in route else "team"} if "look/" in route else {}
    for parameter, value in values.items():
        route = route.replace(parameter, value)
    assert "<" not in route, f"{route}: give the matrix a value for this parameter"
    return route
