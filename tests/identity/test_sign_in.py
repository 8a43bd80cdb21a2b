"""Joiners, movers and leavers of a real OpenID provider, and answers of a provider that has gone wrong."""

import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from django.contrib.auth.models import User
from jwt.utils import base64url_encode

from billing.tenancy.models import AuditEntry, Membership
from tests.identity.conftest import CLIENT_SECRET, NewBrowser, Provider, jwk_of

pytestmark = pytest.mark.django_db(transaction=True)


def roles() -> list[tuple[str, str, str | None]]:
    held = Membership.objects.order_by("user__username", "role", "team__code")
    return list(held.values_list("user__username", "role", "team__code"))


def test_a_joiner_gets_an_account_with_the_roles_of_their_groups(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={"groups": ["gpu-finance", "nlp-leads", "canteen"], "email": "mei@example.org"})
    mei = browser()
    assert mei.sign_in("mei").status_code == 200
    assert (mei.status("/close/"), mei.status("/teams/nlp/")) == (200, 200)
    assert roles() == [("mei", "finance", None), ("mei", "lead", "nlp")]
    assert not User.objects.get().has_usable_password()


def test_a_mover_has_the_new_roles_at_the_next_sign_in_and_then_in_open_sessions_too(
    provider: Provider, browser: NewBrowser
) -> None:
    provider.people(mei={"groups": ["gpu-finance"]})
    office, laptop = browser(), browser()
    office.sign_in("mei")
    assert office.status("/close/") == 200
    provider.people(mei={"groups": ["cv-leads"]})
    assert office.status("/close/") == 200  # the provider has not been asked since
    laptop.sign_in("mei")
    assert roles() == [("mei", "lead", "cv")]
    for window in (office, laptop):
        assert (window.status("/close/"), window.status("/teams/cv/"), window.status("/teams/nlp/")) == (403, 200, 404)


def test_whoever_is_in_no_group_any_more_sees_nothing(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={"groups": ["gpu-finance"]})
    browser().sign_in("mei")
    provider.people(mei={})
    mei = browser()
    mei.sign_in("mei")
    assert roles() == []
    assert (mei.status("/close/"), mei.status("/teams/nlp/")) == (403, 403)


def test_a_leaver_does_not_come_back_by_provider_password_or_new_password(
    provider: Provider, browser: NewBrowser
) -> None:
    provider.people(mei={"groups": ["gpu-finance"], "email": "mei@example.org"})
    browser().sign_in("mei")
    person = User.objects.get()
    person.set_password("an abacus has beads")
    person.save()
    provider.people()
    leaver = browser()
    assert leaver.sign_in("mei").status_code == 403
    leaver.http.get("/login/")
    leaver.post("/login/", login="mei", password="an abacus has beads")
    assert not leaver.is_signed_in()
    assert leaver.status("/account/password/set/") == 302


WRONG: dict[str, dict[str, Any]] = {
    "issuer": {"id_token": {"iss": "https://elsewhere.example"}},
    "audience": {"id_token": {"aud": "another-client"}},
    "nonce": {"id_token": {"nonce": "of another sign-in"}},
    "no nonce": {"id_token": {"nonce": None}},
    "expired": {"id_token": {"exp": int(time.time()) - 3600}},
    "no subject": {"id_token": {"sub": None}},
    "two audiences": {"id_token": {"aud": ["suanpan", "another-client"]}},
    "made for another client": {"id_token": {"azp": "another-client"}},
    "a key of somebody else": {"signed_by": jwk_of(generate_private_key(65537, 2048))},
    "the secret of the client as key": {
        "signed_by": {"kty": "oct", "k": base64url_encode(CLIENT_SECRET.encode()).decode(), "alg": "HS256"}
    },
    "no signature": {"signed_by": "nobody"},
    "user information of somebody else": {"userinfo": {"sub": "boss"}},
}


@pytest.mark.parametrize("fault", WRONG)
def test_an_id_token_that_is_not_for_this_sign_in_signs_nobody_in(
    fault: str, provider: Provider, browser: NewBrowser
) -> None:
    provider.people(mei={"groups": ["gpu-finance"]})
    provider.tamper(**WRONG[fault])
    mei = browser()
    mei.sign_in("mei")
    assert not mei.is_signed_in()
    assert not User.objects.exists()
    assert AuditEntry.objects.filter(action="sign_in_failed").count() == 1
    provider.tamper()
    again = browser()
    again.sign_in("mei")
    assert again.is_signed_in()
    assert list(AuditEntry.objects.filter(action="sign_in").values_list("actor", flat=True)) == ["mei"]


def test_an_answer_without_an_id_token_signs_nobody_in(provider: Provider, browser: NewBrowser) -> None:
    provider.people(mei={"groups": ["gpu-finance"]})
    provider.tamper(without_id_token={"now": True})
    mei = browser()
    assert mei.sign_in("mei").status_code == 401
    assert not mei.is_signed_in()
