"""The provider ends sessions here when it ends its own: by its real logout tokens, and never by a false one."""

import secrets
import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from billing.tenancy.models import AuditEntry
from tests.factories.servers import until
from tests.identity.conftest import CLIENT_ID, CLIENT_SECRET, Browser, NewBrowser, Provider

pytestmark = pytest.mark.django_db(transaction=True)
ENDPOINT = "/account/oidc/oidc/backchannel-logout/"
BY_PROVIDER = {"channel": "identity provider", "person": "mei"}
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"


def claims(provider: Provider, **changed: Any) -> dict[str, Any]:
    """Those of a good logout token for mei, with some changed; None takes one away."""
    now = int(time.time())
    good = {
        "iss": provider.url, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8), "sub": "mei",
        "events": {LOGOUT: {}},
    }  # fmt: skip
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def sent(browser: Browser, token: str) -> httpx.Response:
    """What the provider gets for it; it has no cookies."""
    return httpx.post(f"{browser.site}{ENDPOINT}", data={"logout_token": token})


def ended() -> list[tuple[str, str, dict[str, Any]]]:
    found = AuditEntry.objects.filter(action="sign_out_by_provider").values_list("actor", "subject", "detail")
    assert all(len(detail.pop("request_id")) == 32 for _, _, detail in found)
    return list(found)


def test_a_logout_at_the_provider_ends_that_session_and_no_other(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={"groups": ["gpu-finance"]}, ann={})
    office, laptop, ann = browser(), browser(), browser()
    office.sign_in("mei")
    laptop.sign_in("mei")
    ann.sign_in("ann")
    office.sign_out_at_provider()
    until(lambda: not office.is_signed_in())
    assert (laptop.is_signed_in(), ann.is_signed_in()) == (True, True)
    assert ended() == [("identity provider", "mei", {"sessions": 1, "acting": BY_PROVIDER})]
    assert office.status("/api/v1/price-versions") == 401


def test_a_logout_of_a_person_ends_every_session_of_theirs(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={}, ann={})
    office, laptop, ann = browser(), browser(), browser()
    office.sign_in("mei")
    laptop.sign_in("mei")
    ann.sign_in("ann")
    provider.people(ann={})
    answer = sent(office, provider.signed(claims(provider)))
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert (office.is_signed_in(), laptop.is_signed_in(), ann.is_signed_in()) == (False, False, True)
    assert ended() == [("identity provider", "mei", {"sessions": 2, "acting": BY_PROVIDER})]


def test_a_logout_token_that_does_not_hold_ends_nothing(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={})
    mei = browser()
    mei.sign_in("mei")
    now = int(time.time())
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "issuer": ({"iss": "https://elsewhere.example"}, "Invalid issuer"),
        "audience": ({"aud": "another-client"}, "Audience doesn't match"),
        "no time": ({"iat": None}, 'Token is missing the "iat" claim'),
        "of the future": ({"iat": now + 600}, "The token is not yet valid (iat)"),
        "old": ({"iat": now - 3600}, "this logout token is too old"),
        "expired": ({"exp": now - 600}, "Signature has expired"),
        "no id": ({"jti": None}, 'Token is missing the "jti" claim'),
        "no events": ({"events": None}, 'Token is missing the "events" claim'),
        "another event": ({"events": {"https://example.org/other": {}}}, "events does not name a back-channel logout"),
        "an ID token": ({"nonce": "n"}, "a logout token has no nonce"),
        "nobody": ({"sub": None}, "neither sub nor sid names whose session it was"),
        "not a name": ({"sid": 7}, "neither sub nor sid names whose session it was"),
    }
    for fault, (changed, why) in wrong.items():
        answer = sent(mei, provider.signed(claims(provider, **changed)))
        assert (fault, answer.status_code, answer.json()["error"]) == (fault, 400, "invalid_request")
        assert (fault, answer.json()["error_description"]) == (fault, why)
    stranger = generate_private_key(65537, 2048)
    secret = jwt.encode(claims(provider), CLIENT_SECRET, algorithm="HS256", headers={"kid": "one"})
    unsigned = jwt.encode(claims(provider), None, algorithm="none", headers={"kid": "one"})
    for token in (provider.signed(claims(provider), key=stranger), secret, unsigned, "", "not a token", "x" * 20_000):
        assert sent(mei, token).status_code == 400
    assert httpx.get(f"{mei.site}{ENDPOINT}").status_code == 405
    assert mei.is_signed_in()
    assert ended() == []


def test_a_logout_token_counts_once(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={})
    mei = browser()
    mei.sign_in("mei")
    token = provider.signed(claims(provider))
    assert sent(mei, token).status_code == 200
    again = browser()
    again.sign_in("mei")
    refused = sent(mei, token)
    assert (refused.status_code, refused.json()["error_description"]) == (400, "this logout token was used before")
    assert again.is_signed_in()
