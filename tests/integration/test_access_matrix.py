"""Every operation of the API with every scope of a token of every team; every address with every strength of a session, and
as somebody of a team above and below. Addresses come from the URL configuration: a new one without an entry fails.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from billing.tenancy.models import Team
from billing.tenancy.tokens import OF_ALL_TEAMS, SCOPES, api_token_create
from tests import factories
from tests.factories.api import bearer
from tests.factories.roles import MATRIX, filled, scenario

__all__ = ["scenario"]

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
RELATED: Final = {"own": "nlp", "parent": "research", "child": "nlp-sub", "foreign": "cv"}
"""How a team is related to nlp, which every address is asked about."""
Cells = Mapping[str, int]


def bound(everybody: int, *, above: int, below: int) -> Cells:
    """What a token of all teams gets, one of the team or of a group above it, and one of a team below or elsewhere."""
    return {"all": everybody, "own": above, "parent": above, "child": below, "foreign": below}


SAME, OF_ONE, OF_ALL = bound(200, above=200, below=200), bound(200, above=200, below=404), bound(200, above=404, below=404)
BAD, MISSING = bound(400, above=400, below=400), bound(404, above=404, below=404)
TAKEN, WRONG, GONE = {"all": 200}, {"all": 400}, {"all": 409}
DRAFTS: Final = {"prices:write": TAKEN, "prices:approve": TAKEN}
LISTS: Final = {"prices:read": SAME, **DRAFTS}
# operation: what a token gets by its one scope and its team; any other scope, or a team that is not named, gets 403
OPERATIONS: Final[dict[str, dict[str, Cells]]] = {
    "POST usage/tokens": {"usage:write": TAKEN},
    "POST usage/gpu-allocations": {"usage:write": WRONG},
    "POST usage/capacity": {"usage:write": WRONG},
    "POST usage/efficiency": {"usage:write": TAKEN},
    "POST usage/watermarks": {"usage:write": WRONG},
    "POST usage/engine-counters": {"usage:write": TAKEN},
    "POST usage/litellm": {"usage:write": TAKEN},
    "POST events": {"usage:write": WRONG},
    "POST events/batch": {"usage:write": WRONG},
    "GET budgets": {"budgets:read": SAME},
    "GET budgets/check": {"budgets:read": BAD},
    "POST budgets/reservations": {"budgets:read": BAD},
    "DELETE ^budgets/reservations/(?P<identity>[0-9a-f]{24})$": {"budgets:read": MISSING},
    "GET usage/summary": {"usage:read": BAD},
    "GET quarantine": {"usage:read": TAKEN},
    "POST quarantine/<int:pk>": {"usage:correct": WRONG},
    "GET teams": {"invoices:read": SAME},
    "GET prices": {"prices:read": SAME},
    "GET commitments": {"invoices:read": SAME},
    "GET commitments/drafts": {"invoices:read": SAME},
    "POST commitments/drafts": {"prices:write": WRONG},
    "POST commitments/drafts/<int:pk>/<str:step>": {"prices:write": GONE},
    "GET price-versions": LISTS,
    "POST price-versions": {"prices:write": WRONG},
    "GET price-versions/<str:name>": LISTS,
    "PATCH price-versions/<str:name>": {"prices:write": GONE},
    "GET price-versions/<str:name>/diff": LISTS,
    "GET price-versions/<str:name>/effect": DRAFTS,
    "GET price-versions/<str:name>/file": DRAFTS,
    "POST price-versions/<str:name>/<str:step>": {"prices:write": GONE},
    "GET price-drafts": DRAFTS,
    "GET charges": {"invoices:read": SAME},
    "GET invoices": {"invoices:read": SAME},
    "GET ^invoices/(?P<number>[^/]+?)(?:\\.(?P<suffix>json|pdf|csv|xlsx))?$": {"invoices:read": OF_ONE},
    "GET credit-notes": {"invoices:read": SAME},
    "GET ^credit-notes/(?P<number>[^/]+?)(?:\\.(?P<suffix>json|pdf|csv|xlsx))?$": {"invoices:read": OF_ONE},
    "GET disputes": {"invoices:read": SAME},
    "POST disputes": {"disputes:write": BAD},
    "GET disputes/<int:pk>": {"invoices:read": OF_ONE},
    "GET periods/<str:month>": {"invoices:read": SAME},
    "GET periods/<str:month>/accrual": {"invoices:read": MISSING},
    "GET periods/<str:month>/report": {"invoices:read": OF_ALL},
    "GET periods/<str:month>/meter-readings": {"usage:read": TAKEN},
    "POST periods/<str:month>/meter-readings": {"usage:correct": WRONG},
    "GET periods/<str:month>/held-teams": {"invoices:read": SAME},
    "POST periods/<str:month>/reopenings": {},
    "POST periods/<str:month>/journal": {"journal:acknowledge": WRONG},
    "GET focus/<str:month>": {"invoices:read": OF_ALL},
    "GET explore": {"invoices:read": SAME},
    "GET version": dict.fromkeys(SCOPES, SAME),
}
SCIM: Final = {
    "GET ServiceProviderConfig": 200, "GET ResourceTypes": 200, "GET ResourceTypes/<str:name>": 404, "GET Schemas": 200,
    "GET Schemas/<str:name>": 404, "GET Users": 200, "POST Users": 400, "GET Users/<int:pk>": 404,
    "PUT Users/<int:pk>": 404, "PATCH Users/<int:pk>": 400, "DELETE Users/<int:pk>": 404, "GET Groups": 200,
    "POST Groups": 400, "GET Groups/<int:pk>": 404, "PUT Groups/<int:pk>": 400, "PATCH Groups/<int:pk>": 400,
    "DELETE Groups/<int:pk>": 404,
}  # fmt: skip
for _name, _status in SCIM.items():  # no account of the provider is there
    OPERATIONS[_name.replace(" ", " scim/v2/")] = {"people:provision": {"all": _status}}
STEPS: Final = {
    "submit": {"prices:write"}, "withdraw": {"prices:write"}, "approve": {"prices:approve"}, "reject": {"prices:approve"},
}  # fmt: skip
"""Scopes with which a step of a price list or of a commitment is not forbidden."""
OPEN: Final = {"GET schema/"}
EXEMPT: Final = {"healthz", "readyz", "metrics", "logout/"}
"""What a session without a second factor still gets."""


def operations() -> dict[str, str]:
    """Every operation of the API, such as `GET invoices`, with its route."""
    return {
        f"{method.upper()} {route.removeprefix('api/v1/')}": route
        for route, view in routes(get_resolver().url_patterns)
        if (shown := getattr(view, "cls", None)) and route.startswith("api/v1/")
        for method in ("get", "post", "put", "patch", "delete")
        if hasattr(shown, method)
    }


def routes(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route, pattern.callback


@pytest.fixture(scope="module")
def related(scenario: dict[str, Any], django_db_blocker: Any) -> dict[str, Any]:
    """The same month; nlp is below a group and above a team, and there is a token for every scope and team."""
    with django_db_blocker.unblock():
        research = Team.objects.create(code="research", name="Research", is_group=True)
        Team.objects.filter(code="nlp").update(parent=research)
        Team.objects.create(code="nlp-sub", name="Below", parent=Team.objects.get(code="nlp"))
        for name, code in (("above", "research"), ("below", "nlp-sub")):
            factories.person(name, "lead", team=code)
        owner, teams = User.objects.get(username="approver"), {team.code: team for team in Team.objects.all()}
        tokens = {
            (scope, related): api_token_create(
                name=f"{scope} {related}", scopes=[scope], actor="tests", team=teams.get(code), owner=owner
            )[1]
            for scope in SCOPES for related, code in {"all": "", **RELATED}.items() if not code or scope not in OF_ALL_TEAMS
        }  # fmt: skip
    return {**scenario, "tokens": tokens}


def status(client: Client, method: str, address: str, **options: Any) -> int:
    """What the address answers; whatever it did is taken back."""
    with transaction.atomic():
        answer = client.generic(method, address, "{}", content_type="application/json", **options)
        transaction.set_rollback(True)
    return answer.status_code


def test_every_operation_of_the_api_has_an_entry() -> None:
    assert sorted(operations()) == sorted({*OPERATIONS, *OPEN})


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_token_gets_what_its_scope_and_its_team_give(related: dict[str, Any], operation: str) -> None:
    method, address = operation.split()[0], "/" + filled(operations()[operation], related)
    found = {key: status(Client(), method, address, headers=bearer(token)) for key, token in related["tokens"].items()}
    allowed = OPERATIONS[operation]
    assert found == {(scope, team): allowed.get(scope, {}).get(team, 403) for scope, team in related["tokens"]}
    assert status(Client(), method, address) == 401


@pytest.mark.parametrize("step", sorted(STEPS))
@pytest.mark.parametrize("route", ["price-versions/2026-10", "commitments/drafts/1"])
def test_a_step_takes_its_own_scope(related: dict[str, Any], route: str, step: str) -> None:
    tokens = {scope: token for (scope, team), token in related["tokens"].items() if team == "all"}
    address = f"/api/v1/{route}/{step}"
    found = {scope for scope, token in tokens.items() if status(Client(), "POST", address, headers=bearer(token)) != 403}
    unknown = route.startswith("commitments") and step == "submit"  # commitments are proposed at once: no such step
    assert found == ({"prices:write", "prices:approve"} if unknown else STEPS[step])


@pytest.mark.parametrize(("who", "as_role"), [("above", "lead"), ("below", "other")])
def test_a_lead_of_a_group_sees_what_is_below_and_nobody_what_is_above(
    related: dict[str, Any], who: str, as_role: str
) -> None:
    """Statuses are those of the team's own lead or of a stranger, who reads neither the invoice's number nor a namespace."""
    wrong = {}
    for route, (_, expected) in MATRIX.items():
        answer = reached(factories.signed_in(who), route, related)
        if answer.status_code != expected[as_role]:
            wrong[route] = answer.status_code
        if as_role == "other" and answer.status_code == 200 and not answer.streaming:
            shown = answer.content.decode(errors="replace")
            assert [text for text in (related["invoice"].number, "nlp-train") if text in shown] == [], route
    assert wrong == {}


def reached(client: Client, route: str, related: dict[str, Any]) -> Any:
    """What a route answers; whatever it did is taken back."""
    method, address = MATRIX[route][0], "/" + filled(route, related)
    with transaction.atomic():
        if route.endswith("/operations/"):
            answer = client.post(address, {"kind": "issue"})
        else:
            answer = client.generic(method, address)
        transaction.set_rollback(True)
    return answer


def session(username: str, method: str) -> Client:
    """Somebody signed in by this method."""
    client, user = factories.signed_in(username), User.objects.get(username=username)
    opened = client.session
    opened["account_authentication_methods"] = [{"method": method}]
    opened["account_authentication_methods_user"] = str(user.pk)
    opened.save()
    return client


@pytest.mark.parametrize("strength", ["password", "second factor", "identity provider"])
def test_with_a_required_second_factor_a_password_alone_opens_nothing(
    related: dict[str, Any], settings: Any, strength: str
) -> None:
    settings.REQUIRE_TWO_FACTOR = True
    method = "socialaccount" if strength == "identity provider" else "password"
    client = session("finance", method)
    if strength == "second factor":
        Authenticator.objects.create(user=User.objects.get(username="finance"), type="totp", data={})
    wrong = {}
    for route, (_, expected) in MATRIX.items():
        wanted = expected["finance"]
        if strength == "password" and route not in EXEMPT:
            wanted = 403 if route.startswith("api/") else 302
        answer = reached(client, route, related)
        if answer.status_code != wanted:
            wrong[route] = answer.status_code
        if wanted == 302 and strength == "password" and route not in EXEMPT:
            assert answer["Location"] == "/account/2fa/", route
        if route == "logout/":
            client = session("finance", method)
    assert wrong == {}
