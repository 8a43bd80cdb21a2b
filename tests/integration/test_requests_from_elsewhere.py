"""What somebody else's site, link or planted cookie can do to a person who is signed in: nothing."""

import re
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from billing.settings.security_headers import policy_of
from tests import factories
from tests.factories.api import problem
from tests.factories.identity import code_of, provider
from tests.factories.roles import MATRIX, addresses, filled, scenario

__all__ = ["provider", "scenario"]
pytestmark = pytest.mark.django_db
PASSWORD = "an abacus has beads"
ELSEWHERE = [
    "https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "https:evil.example",
    "javascript:alert(1)", " https://evil.example", "http://testserver@evil.example/",
]  # fmt: skip


def address(route: str, scenario: dict[str, Any]) -> str:
    """An address that resolves to the route."""
    if route in MATRIX:
        return "/" + filled(route, scenario)
    text = re.sub(r"\(\?P<(\w+)>[^()]*\)", lambda found: "rates" if found[1] == "app_label" else "oidc", route)
    text = re.sub(r"<(?:path:|int:)?\w+>", "1", text)
    return "/" + text.replace("^", "").replace("$", "")


PROBES = ("healthz", "readyz", "metrics")
ROUTES = [route for route in addresses(get_resolver().url_patterns) if route != "account/oidc/oidc/backchannel-logout/"]
"""Without the one that the identity provider asks: no session counts there, only a token that the provider signed."""


@pytest.mark.parametrize("route", ROUTES)
def test_a_form_of_another_site_changes_nothing(scenario: dict[str, Any], route: str, settings: Any) -> None:
    """Every address of the URL configuration, asked to write by a signed-in browser without our token."""
    root = User.objects.create_superuser("root", password=PASSWORD)
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(root)
    for method in ("post", "put", "patch", "delete"):
        status = getattr(browser, method)(address(route, scenario)).status_code
        # What programs ask and takes no such request of anybody says so; a page looks at the token first.
        takes_none = route in PROBES or (route.startswith("api/") and MATRIX[route][0] != method.upper())
        expected = (401,) if route == "mcp" else (403, 404, 405) if takes_none else (403,)  # no session opens it
        assert status in expected, (route, method, status)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options"])
@pytest.mark.parametrize("path", PROBES)
def test_a_probe_that_writes_is_answered_as_an_endpoint_answers(path: str, method: str) -> None:
    """A load balancer that is set up to POST reads what is wrong in its log; a page of HTML about cookies says nothing."""
    refused = problem(getattr(Client(enforce_csrf_checks=True), method)(f"/{path}"), 405)
    assert refused["detail"] == f'Method "{method.upper()}" not allowed.'
    assert getattr(Client(), method)(f"/{path}").headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("target", ELSEWHERE)
def test_no_address_of_ours_leads_elsewhere(target: str) -> None:
    factories.person("mei", password=PASSWORD)
    client = Client()
    chosen = client.post("/i18n/setlang/", {"language": "zh-hans", "next": target})
    assert chosen["Location"].startswith("/"), chosen["Location"]
    assert not chosen["Location"].startswith(("//", "/\\"))
    sent_by = Client(headers={"referer": target}).post("/i18n/setlang/", {"language": "zh-hans"})
    assert re.fullmatch(r"/(?![/\\]).*", sent_by["Location"])
    entered = client.post("/login/", {"login": "mei", "password": PASSWORD, "next": target})
    assert entered["Location"] == "/"
    assert client.get("/login/", {"next": target}).headers.get("Location", "/") == "/"
    assert client.post("/logout/", {"next": target})["Location"] == "/login/"
    for page in ("/account/reauthenticate/", "/account/logout/"):
        assert "evil.example" not in client.post(page, {"next": target}).headers.get("Location", "")


def test_a_planted_session_is_left_at_sign_in_and_again_at_the_second_factor() -> None:
    person = factories.person("mei", password=PASSWORD)
    TOTP.activate(person, generate_totp_secret())
    victim = Client()
    session = victim.session
    session["planted"] = "yes"
    session.save()
    planted = session.session_key
    assert planted
    victim.cookies["sessionid"] = planted
    entered = victim.post("/login/", {"login": "mei", "password": PASSWORD})
    assert entered["Location"].startswith("/account/2fa/authenticate/")
    between = victim.session.session_key
    assert "_auth_user_id" not in victim.session
    done = victim.post("/account/2fa/authenticate/", {"code": code_of(person)})
    assert (done.status_code, victim.session["_auth_user_id"]) == (302, str(person.pk))
    after = victim.session.session_key
    assert after not in (planted, between)
    thief = Client()
    for key in (planted, between):
        thief.cookies["sessionid"] = str(key)
        assert thief.get("/")["Location"].startswith("/login/")


def test_signing_out_ends_the_session_on_the_server() -> None:
    factories.person("mei", password=PASSWORD)
    client = Client()
    client.post("/login/", {"login": "mei", "password": PASSWORD})
    kept = client.cookies["sessionid"].value
    client.post("/logout/")
    thief = Client()
    thief.cookies["sessionid"] = kept
    assert thief.get("/")["Location"].startswith("/login/")


def test_a_page_lets_the_browser_run_only_our_files(scenario: dict[str, Any]) -> None:
    client = factories.signed_in("auditor")
    for path in ("/", "/invoices/", "/close/", "/login/", "/nothing-here", "/api/v1/teams", "/healthz"):
        response = client.get(path).headers
        policy = dict(item.split(" ", 1) for item in response["Content-Security-Policy"].split("; "))
        assert policy["script-src"] == policy["style-src"] == "'self'", path
        assert (policy["default-src"], policy["frame-ancestors"], policy["base-uri"]) == ("'none'",) * 3
        assert (response["X-Frame-Options"], response["X-Content-Type-Options"]) == ("DENY", "nosniff")
        assert response["Referrer-Policy"] == "same-origin"
        assert response["Cross-Origin-Opener-Policy"] == "same-origin"
        assert "no-store" in response["Cache-Control"], path


def test_only_the_admin_is_granted_more_and_no_script_of_a_page() -> None:
    """What its own files need (an evaluation, a style of a page); an address that only looks like it gets nothing."""
    granted = dict(item.split(" ", 1) for item in policy_of("/admin/auth/user/").split("; "))
    assert (granted["script-src"], granted["style-src"]) == ("'self' 'unsafe-eval'", "'self' 'unsafe-inline'")
    for path in ("/", "/administrators/", "/teams/admin/", "/account/2fa/", "/api/v1/admin/", "/adminx", "/static/admin/"):
        assert "unsafe" not in policy_of(path), path


def test_cookies_are_out_of_reach_of_scripts_and_of_other_sites() -> None:
    factories.person("mei", password=PASSWORD)
    client = Client()
    client.post("/login/", {"login": "mei", "password": PASSWORD})
    session = client.cookies["sessionid"]
    assert (session["httponly"], session["samesite"]) == (True, "Lax")
    assert client.cookies["csrftoken"]["samesite"] == "Lax"


def test_the_sign_in_page_may_send_a_person_to_the_provider_and_no_other_page_may(provider: Any) -> None:
    assert "form-action 'self' http:;" in policy_of("/login/")
    assert "form-action 'self' http:;" in policy_of("/account/login/")
    assert "form-action 'self';" in policy_of("/invoices/")
