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
from billing.tenancy.tokens import OF_ALL_TEAMS, SCOPES
from tests import factories
from tests.factories.api import bearer
from tests.factories.roles import MATRIX, WHO, WRITE, addresses, filled, reached, scenario

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
    "POST usage/kong": {"usage:write": TAKEN},
    "POST usage/apisix": {"usage:write": TAKEN},
    "POST events": {"usage:write": WRONG},
    "POST events/batch": {"usage:write": WRONG},
    "GET budgets": {"budgets:read": SAME},
    "GET budgets/check": {"budgets:read": BAD},
    "GET ^budgets/authorize(?P<client_path>/.*)?$": {"budgets:read": BAD},
    "POST ^budgets/authorize(?P<client_path>/.*)?$": {"budgets:read": BAD},
    "POST budgets/reservations": {"budgets:read": BAD},
    "DELETE ^budgets/reservations/(?P<identity>[0-9a-f]{24})$": {"budgets:read": MISSING},
    "GET usage/summary": {"usage:read": BAD},
    "GET quarantine": {"usage:read": TAKEN},
    "POST quarantine/<int:pk>": {"usage:correct": WRONG},
    "GET teams": {"invoices:read": SAME},
    "GET teams/<str:code>/organisation": {"invoices:read": OF_ONE},
    "PATCH teams/<str:code>/organisation": {"teams:write": WRONG},
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
    "GET ^invoices/(?P<number>[^/]+?)(?:\\.(?P<suffix>(?:consumers\\.)?(?:json|csv|xlsx)|pdf))?$": {"invoices:read": OF_ONE},
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
    "GET metrics": {"invoices:read": SAME, "budgets:read": SAME},
    "GET inbox": {"invoices:read": SAME},
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
SESSION: Final = {**WRITE, "above": 403, "below": 403}
PRICES: Final = {**SESSION, "finance": 400, "admin": 400}
# operation: what a signed-in person gets, of those operations for which MATRIX does not say it
BY_ROLE: Final[dict[str, Cells]] = {
    "PATCH price-versions/<str:name>": {**SESSION, "finance": 409, "admin": 409},  # it is published
    "POST price-versions": PRICES,  # an empty form
    "POST commitments/drafts": PRICES,
    "PATCH teams/<str:code>/organisation": {**SESSION, "admin": 400},  # an empty form
    "POST disputes": SESSION,
    "POST ^budgets/authorize(?P<client_path>/.*)?$": SESSION,
    "POST periods/<str:month>/meter-readings": SESSION,
    "GET scim/v2/Users": SESSION,
    "GET scim/v2/Users/<int:pk>": SESSION,
    "PUT scim/v2/Users/<int:pk>": SESSION,
    "DELETE scim/v2/Users/<int:pk>": SESSION,
    "GET scim/v2/Groups": SESSION,
    "GET scim/v2/Groups/<int:pk>": SESSION,
    "PUT scim/v2/Groups/<int:pk>": SESSION,
    "DELETE scim/v2/Groups/<int:pk>": SESSION,
}
CLOSED, ASKS, LEADS, SHOWS = (404, 404), (302, 302), (302, 200), (200, 200)
# address below account/, without one that must be signed: what nobody and somebody signed in get
OF_ACCOUNTS: Final[dict[str, tuple[int, int]]] = {
    "password/set/": LEADS, "oidc/oidc/login/callback/": CLOSED, "oidc/oidc/backchannel-logout/": (405, 405),
    "3rdparty/": CLOSED, "email/": CLOSED, "login/": (200, 302), "logout/": LEADS, "inactive/": SHOWS,
    "signup/": (200, 302), "reauthenticate/": (302, 403), "confirm-email/": SHOWS, "password/change/": ASKS,
    "password/reset/": SHOWS, "login/code/confirm/": ASKS, "^confirm-email/(?P<key>[-:\\w]+)/$": CLOSED,
    "password/reset/key/done/": SHOWS, "^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$": CLOSED,
    "password/reset/done/": SHOWS, "2fa/": LEADS, "2fa/authenticate/": ASKS, "2fa/reauthenticate/": (302, 403),
    "2fa/totp/activate/": LEADS, "2fa/totp/deactivate/": (302, 404), "2fa/recovery-codes/": (302, 404),
    "2fa/recovery-codes/generate/": LEADS, "2fa/recovery-codes/download/": (302, 404), "2fa/webauthn/": LEADS,
    "2fa/webauthn/add/": LEADS, "2fa/webauthn/reauthenticate/": (302, 403),
    "2fa/webauthn/keys/<int:pk>/remove/": (302, 404), "2fa/webauthn/keys/<int:pk>/edit/": (302, 404),
    "2fa/webauthn/login/": ASKS, "3rdparty/login/cancelled/": SHOWS, "3rdparty/login/error/": (401, 401),
    "3rdparty/signup/": ASKS, "social/login/cancelled/": (301, 301), "social/login/error/": (301, 301),
    "social/signup/": (301, 301), "social/connections/": (301, 301), "oidc/^(?P<provider_id>[^/]+)/login/": CLOSED,
    "oidc/^(?P<provider_id>[^/]+)/login/callback/": CLOSED,
}  # fmt: skip
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
        owner, teams = User.objects.create_superuser("owner"), {team.code: team for team in Team.objects.all()}
        tokens = {
            (scope, related): factories.own_token(owner, f"{scope} {related}", scope, team=teams.get(code))[1]
            for scope in SCOPES for related, code in {"all": "", **RELATED}.items() if not code or scope not in OF_ALL_TEAMS
        }  # fmt: skip
    return {**scenario, "tokens": tokens}


def status(client: Client, method: str, address: str, **options: Any) -> int:
    """What the address answers; whatever it did is taken back."""
    with transaction.atomic():
        answer = client.generic(method, address, "{}", content_type="application/json", **options)
        if answer.streaming:
            list(answer)
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


@pytest.mark.parametrize("operation", sorted(BY_ROLE))
def test_a_session_gets_what_its_role_gives_by_every_method(related: dict[str, Any], operation: str) -> None:
    method, address = operation.split()[0], "/" + filled(operations()[operation], related)
    clients = {who: factories.signed_in(who) if who != "nobody" else Client() for who in BY_ROLE[operation]}
    assert {who: status(client, method, address) for who, client in clients.items()} == BY_ROLE[operation]


def test_every_operation_is_asked_with_a_session_of_every_role() -> None:
    asked = {f"{method} {route.removeprefix('api/v1/')}" for route, (method, _) in MATRIX.items() if "api/" in route}
    assert sorted(asked & set(BY_ROLE)) == []
    assert sorted(operations()) == sorted((asked | set(BY_ROLE)) - {"GET ^.*$"})


def test_every_page_of_accounts_has_an_entry_and_asks_who_it_is(related: dict[str, Any]) -> None:
    below = {route.removeprefix("account/"): route for route in addresses(get_resolver().url_patterns)
             if route.startswith("account/")}  # fmt: skip
    found = {}
    for name, route in below.items():
        address = "/" + route.replace("<int:pk>", "1")
        clients = Client(), factories.signed_in("finance")
        found[name] = tuple(client.get(address).status_code for client in clients)  # allauth answers JSON with JSON
    assert found == OF_ACCOUNTS


def test_the_administration_shows_a_role_that_opens_it_prices_and_no_account(related: dict[str, Any]) -> None:
    client = factories.signed_in("admin")
    shown = {route for route in addresses(get_resolver().url_patterns) if route.startswith("admin/") and "<" not in route
             and route not in ("admin/logout/", "admin/login/", "admin/(?P<url>.*)$")
             and client.get(f"/{route}").status_code == 200}  # fmt: skip
    lists = {f"rates/{name}/" for name in ("costsheet", "efficiencypolicy", "pricedraft", "priceversion", "tokencostsheet")}
    assert {route.removeprefix("admin/") for route in shown} == {
        "", "search/", "jsi18n/", "password_change/", "password_change/done/", "rates/pricedraft/add/", *lists,
    }  # fmt: skip


@pytest.mark.parametrize("who", [who for who in WHO if who != "admin"])
def test_no_page_of_the_administration_opens_to_another_role(related: dict[str, Any], who: str) -> None:
    """They take staff or the role admin; its own pages are asked in the tests of each."""
    client = Client() if who == "nobody" else factories.signed_in(who)
    below = [route for route in addresses(get_resolver().url_patterns) if route.startswith("admin/")]
    assert len(below) > 50
    wrong = {}
    for route in below:
        address = "/" + route.replace("<path:object_id>", "1")
        for method in ("GET", "POST"):
            answer = status(client, method, address)
            if answer != (403 if route == "admin/login/" and who != "nobody" else 302):
                wrong[method, route] = answer
        if route == "admin/logout/":
            client = Client() if who == "nobody" else factories.signed_in(who)
    assert wrong == {}


def session(username: str, method: str) -> Client:
    """Somebody signed in by this method."""
    client, user = factories.signed_in(username), User.objects.get(username=username)
    opened = client.session
    opened["account_authentication_methods"] = [{"method": method}]
    opened["account_authentication_methods_user"] = str(user.pk)
    opened.save()
    return client


PEOPLE: Final = [who for who in WHO if who != "nobody"]


@pytest.mark.parametrize("who", PEOPLE)
def test_with_a_required_second_factor_a_password_alone_opens_nothing(
    related: dict[str, Any], settings: Any, who: str
) -> None:
    settings.REQUIRE_TWO_FACTOR = True
    client, found = session(who, "password"), {}
    for route in [route for route in MATRIX if route not in EXEMPT]:
        answer = reached(client, route, related)
        found[route] = answer.status_code, answer.get("Location")
    assert found == {route: (403, None) if route.startswith("api/") else (302, "/account/2fa/") for route in found}
    for route in sorted(EXEMPT):
        assert reached(client, route, related).status_code == MATRIX[route][1][who]


@pytest.mark.parametrize("method", ["password", "socialaccount"])
def test_a_second_factor_or_the_identity_provider_opens_every_address(
    related: dict[str, Any], settings: Any, method: str
) -> None:
    """Each is asked by somebody whose role opens it, in turn: what each role gets at each, test_roles shows."""
    settings.REQUIRE_TWO_FACTOR = True
    if method == "password":
        for user in User.objects.filter(username__in=PEOPLE):
            Authenticator.objects.create(user=user, type="totp", data={})
    wrong = {}
    for number, (route, (_, expected)) in enumerate(MATRIX.items()):
        opened = min(expected[who] for who in PEOPLE)
        openers = [who for who in PEOPLE if expected[who] == opened]
        who = openers[number % len(openers)]
        answer = reached(session(who, method), route, related)
        if answer.status_code != opened or answer.get("Location") == "/account/2fa/":
            wrong[who, route] = answer.status_code
    assert wrong == {}
