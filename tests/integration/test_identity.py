"""Signing in: local accounts with limits and a second factor, and an identity provider of the test's own over real HTTP."""

import time
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from billing.settings.identity import groups_of
from billing.settings.identity_settings import provider_apps, read_group_roles
from billing.tenancy.access import access_of
from billing.tenancy.models import AuditEntry, Membership, Team
from billing.tenancy.roles import role_grant
from tests import factories
from tests.factories.identity import Provider, code_for, code_of, provider, sign_in_there

__all__ = ["provider"]

pytestmark = pytest.mark.django_db
PASSWORD = "an abacus has beads"


def roles(username: str) -> list[tuple[str, str | None, str]]:
    held = Membership.objects.filter(user__username=username).values_list("role", "team__code", "origin")
    return sorted(held, key=str)


def test_groups_of_the_provider_give_roles_and_take_them_away(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    factories.apply(tmp_path)
    client = sign_in_there(provider, sub="42", groups=["gpu-finance", "nlp-leads", "somebody-else"])
    assert client.get("/close/").status_code == 200
    assert roles("mei") == [("finance", None, "provider"), ("lead", "nlp", "provider")]
    assert "lead for team 'not-there', which does not exist" in caplog.text
    role_grant(user=User.objects.get(), role="viewer", team=Team.objects.get(code="cv"), actor="boss")
    client = sign_in_there(provider, sub="42", groups=["nlp-leads"])
    assert client.get("/close/").status_code == 403
    assert roles("mei") == [("lead", "nlp", "provider"), ("viewer", "cv", "local")]
    assert User.objects.count() == 1
    assert not User.objects.get().has_usable_password()
    assert AuditEntry.objects.filter(action="roles_from_provider", actor="identity provider").count() == 2


def test_whoever_has_no_known_group_signs_in_and_sees_nothing(provider: Provider, tmp_path: Path) -> None:
    factories.apply(tmp_path)
    client = sign_in_there(provider, sub="7", groups=[])
    assert [client.get(f"/{path}/").status_code for path in ("teams/nlp", "teams/none", "close", "prices")] == [403] * 4
    assert access_of(User.objects.get()).everywhere == frozenset()


def test_a_local_account_of_the_same_name_and_address_is_somebody_else(provider: Provider, tmp_path: Path) -> None:
    factories.apply(tmp_path)
    local = factories.person("mei", "finance", password=PASSWORD)
    User.objects.filter(pk=local.pk).update(email="mei@example.org", is_superuser=True)
    client = sign_in_there(provider, sub="666", groups=[], email_verified=True)
    assert User.objects.count() == 2
    assert client.get("/close/").status_code == 403


def test_a_forged_answer_of_the_provider_signs_nobody_in(provider: Provider) -> None:
    client = Client()
    client.post("/account/oidc/oidc/login/?process=login")
    response = client.get("/account/oidc/oidc/login/callback/", {"code": "x", "state": "forged"})
    assert response.status_code in (200, 401, 403)
    assert "_auth_user_id" not in client.session


def test_the_sign_in_page_offers_the_provider_where_there_is_one(provider: Provider) -> None:
    page = Client().get("/login/").content.decode()
    assert "Company sign-in" in page
    assert "provider-secret" not in page


def test_nobody_makes_a_local_account_alone() -> None:
    response = Client().post("/account/signup/", {"username": "eve", "password1": PASSWORD, "password2": PASSWORD})
    assert response.status_code == 200
    assert User.objects.count() == 0


def attempt(client: Client, name: str, password: str) -> bool:
    """Whether it signs in."""
    return "_auth_user_id" in client.post("/login/", {"login": name, "password": password}).wsgi_request.session


@pytest.mark.parametrize(("theirs", "ours", "comes_in"), [
    ("10.0.0.1", "10.0.0.1", False),
    ("10.0.0.1", "10.0.0.2", True),
    ("2001:db8:1:2::1", "2001:db8:1:2::ffff", False),
    ("2001:db8:1:2::1", "2001:db8:1:3::1", True),
])  # fmt: skip
def test_wrong_passwords_count_by_account_and_network(theirs: str, ours: str, comes_in: bool) -> None:
    factories.person("ann", password=PASSWORD)
    factories.person("ben", password=PASSWORD)
    assert [attempt(Client(REMOTE_ADDR=theirs), "ann", f"wrong-{number}") for number in range(6)] == [False] * 6
    assert attempt(Client(REMOTE_ADDR=ours), "ann", PASSWORD) is comes_in
    assert attempt(Client(REMOTE_ADDR=theirs), "ben", PASSWORD), "another account there is not concerned"


def test_nobody_keeps_a_device_out_that_is_known_whatever_they_try_beside_it(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "login": "8/m/ip"}
    factories.person("ann", password=PASSWORD)
    known, stranger = Client(REMOTE_ADDR="10.0.0.1"), Client(REMOTE_ADDR="10.0.0.1")
    assert attempt(known, "ann", PASSWORD)
    cookie = known.cookies["known_device"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 180 * 86_400)
    assert "ann" not in cookie.value
    known.post("/logout/")
    assert [attempt(stranger, "ann", "wrong") for _ in range(12)] == [False] * 12
    assert not attempt(stranger, "ann", PASSWORD)
    assert attempt(known, "ann", PASSWORD)


def test_a_known_device_has_five_attempts_of_its_own_at_the_accounts_it_is_known_for() -> None:
    factories.person("ann", password=PASSWORD)
    factories.person("ben", password=PASSWORD)
    known = Client(REMOTE_ADDR="10.0.0.1")
    assert attempt(known, "ann", PASSWORD)
    known.post("/logout/")
    assert [attempt(known, "ann", "wrong") for _ in range(5)] == [False] * 5
    assert not attempt(known, "ann", PASSWORD)
    assert [attempt(known, "ben", "wrong") for _ in range(5)] == [False] * 5
    assert not attempt(known, "ben", PASSWORD), "of whom it is not known: as from anywhere"


@pytest.mark.parametrize("forged", ["", "x", "eyJkZXZpY2UiOiAieCJ9:1abc:signature"])
def test_a_device_that_names_itself_known_is_not(forged: str) -> None:
    factories.person("ann", password=PASSWORD)
    client = Client(REMOTE_ADDR="10.0.0.1")
    client.cookies["known_device"] = forged
    assert [attempt(client, "ann", "wrong") for _ in range(5)] == [False] * 5
    assert not attempt(client, "ann", PASSWORD)


def test_attempts_are_limited_per_address() -> None:
    client = Client(REMOTE_ADDR="10.1.1.1")
    statuses = [client.post("/login/", {"login": f"user-{n}", "password": "wrong"}).status_code for n in range(31)]
    assert statuses[-1] == 429
    assert "Too many attempts" in client.post("/login/", {"login": "x", "password": "y"}).content.decode()


def test_a_forwarded_address_is_believed_only_from_own_proxies() -> None:
    statuses = [
        Client(REMOTE_ADDR="10.2.2.2", HTTP_X_FORWARDED_FOR=f"10.9.9.{n}")
        .post("/login/", {"login": f"user-{n}", "password": "wrong"}).status_code
        for n in range(31)
    ]  # fmt: skip
    assert statuses[-1] == 429


def test_a_second_factor_is_asked_for_and_its_secret_is_sealed(settings: Any) -> None:
    person = factories.person("ann", "finance", password=PASSWORD)
    client = Client()
    client.post("/login/", {"login": "ann", "password": PASSWORD})
    asked = client.get("/account/2fa/totp/activate/")
    assert asked["Location"].startswith("/account/reauthenticate/")  # whoever finds an open browser changes no factor
    assert client.post("/account/reauthenticate/", {"password": PASSWORD}).status_code == 302
    page = client.get("/account/2fa/totp/activate/")
    assert page.status_code == 200
    secret = page.context["form"].secret
    code = code_for(secret)
    assert client.post("/account/2fa/totp/activate/", {"code": code}).status_code == 302
    stored = Authenticator.objects.get(user=person, type="totp").data["secret"]
    assert secret not in stored
    again = Client()
    response = again.post("/login/", {"login": "ann", "password": PASSWORD})
    assert response["Location"].startswith("/account/2fa/authenticate/")
    assert again.get("/").status_code == 302
    assert "_auth_user_id" not in again.session
    wrong = "000000" if code_of(person) != "000000" else "111111"
    assert again.post("/account/2fa/authenticate/", {"code": wrong}).status_code == 200
    assert "_auth_user_id" not in again.session
    time.sleep(max(0, time.time() % 30 - 28))  # the half minute ends in neither of the next lines
    assert again.post("/account/2fa/authenticate/", {"code": code_for(secret, 3)}).status_code == 200
    assert again.post("/account/2fa/authenticate/", {"code": code_for(secret, 1)}).status_code == 302
    assert "_auth_user_id" in again.session


def test_that_somebody_signed_in_is_no_news_later() -> None:
    factories.person("ann", "finance", password=PASSWORD)
    client = Client()
    client.post("/login/", {"login": "ann", "password": PASSWORD})
    client.get("/overview/")
    page = client.get("/account/2fa/").content.decode()
    assert "Authenticator" in page
    assert "signed in" not in page


def test_the_admin_has_no_endpoint_of_its_own() -> None:
    person = factories.person("root", password=PASSWORD)
    User.objects.filter(pk=person.pk).update(is_staff=True, is_superuser=True)
    response = Client().get("/admin/login/?next=/admin/")
    assert response.status_code == 302
    assert "/login/" in response["Location"]


def test_the_provider_is_set_up_whole_or_not_at_all() -> None:
    assert provider_apps({}) == []
    with pytest.raises(ImproperlyConfigured, match="OIDC_CLIENT_ID, OIDC_CLIENT_SECRET: missing, while OIDC_SERVER_URL"):
        provider_apps({"OIDC_SERVER_URL": "https://id.example.org"})


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("[]", "must be a JSON object"),
        ('{"g": "king"}', "group 'g': 'king' must be one of viewer, lead"),
        ('{"g": "finance:nlp"}', "group 'g': finance is for the whole installation"),
        ("{", "Expecting"),
    ],
)
def test_a_wrong_mapping_of_groups_is_named(text: str, reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        read_group_roles(text)


def test_groups_are_found_wherever_a_provider_puts_them() -> None:
    assert groups_of({"userinfo": {"groups": ["a", 7, "b"]}}, "groups") == {"a", "b"}
    assert groups_of({"userinfo": {}, "id_token": {"roles": "a"}}, "roles") == {"a"}
    assert groups_of({"groups": ["a"]}, "groups") == {"a"}
    assert groups_of({}, "groups") == set()


def test_attempts_that_are_refused_say_when_to_come_again(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "login": "2/m/ip"}
    client = Client(REMOTE_ADDR="10.3.3.3")
    answers = [client.post("/login/", {"login": f"user-{n}", "password": "wrong"}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["Retry-After"] == "60"


def test_false_logout_tokens_are_limited_per_address(provider: Provider, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "logout_token_failed": "3/m/ip"}
    asked = [("10.4.4.4", n) for n in range(4)] + [("10.4.4.5", 5)]
    answers = [
        Client(REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR=f"10.9.9.{n}")
        .post("/account/oidc/oidc/backchannel-logout/", {"logout_token": "x" * 16_385})
        for address, n in asked
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [400, 400, 400, 429, 400]
    assert answers[3].headers["Retry-After"] == "60"
    assert answers[3].json()["error"] == "too_many_requests"
