"""How long somebody is signed in, by which way, and what the audit log says of it."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.test import Client

from billing.settings import sessions
from billing.tenancy.models import AuditEntry
from tests import factories
from tests.factories.identity import Provider, code_for, provider, sign_in_there

__all__ = ["provider"]

pytestmark = pytest.mark.django_db
PASSWORD = "an abacus has beads"


def signed_in(username: str = "ann", password: str = PASSWORD) -> Client:
    client = Client()
    client.post("/login/", {"login": username, "password": password})
    return client


def entries(*actions: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    found = AuditEntry.objects.filter(action__in=actions).order_by("id")
    return list(found.values_list("actor", "action", "subject", "detail"))


def later(monkeypatch: pytest.MonkeyPatch, **ahead: float) -> None:
    moment = sessions.time() + timedelta(**ahead).total_seconds()
    monkeypatch.setattr(sessions, "time", lambda: moment)


def test_a_person_of_the_provider_gets_no_local_password(provider: Provider) -> None:
    client = sign_in_there(provider, sub="42", groups=[])
    person = User.objects.get()
    assert client.get("/account/password/set/").status_code == 404
    form = {"password1": PASSWORD, "password2": PASSWORD}
    assert client.post("/account/password/set/", form).status_code == 404
    person.refresh_from_db()
    assert not person.has_usable_password()


def test_a_password_that_a_person_of_the_provider_has_all_the_same_opens_nothing(provider: Provider) -> None:
    """Whoever left the company is refused by the provider; an old password must not let them in beside it."""
    sign_in_there(provider, sub="42", groups=["gpu-finance"])
    person = User.objects.get()
    person.set_password(PASSWORD)
    person.save()
    client = signed_in(person.get_username())
    assert "_auth_user_id" not in client.session


def test_nobody_links_another_identity_to_an_open_session(provider: Provider) -> None:
    factories.person("ann", "finance", password=PASSWORD)
    client = signed_in()
    assert client.get("/account/3rdparty/").status_code == 404
    provider.person = {"preferred_username": "mallory", "email": "mallory@example.org", "sub": "66"}
    away = client.post("/account/oidc/oidc/login/?process=connect")
    back = provider.come_back(client, away)
    assert back.status_code == 403
    assert not User.objects.get(username="ann").socialaccount_set.exists()


def test_where_there_is_no_provider_nobody_is_signed_out_by_one() -> None:
    answer = Client().post("/account/oidc/oidc/backchannel-logout/", {"logout_token": "x.y.z"})
    assert answer.status_code == 404
    assert Client().get("/account/oidc/oidc/login/callback/", {"code": "x", "state": "y"}).status_code == 404


def test_the_api_too_asks_a_session_for_its_second_factor(settings: Any, tmp_path: Path) -> None:
    factories.apply(tmp_path)
    factories.person("ann", "finance", password=PASSWORD)
    client = signed_in()
    assert client.get("/api/v1/price-versions").status_code == 200
    settings.REQUIRE_TWO_FACTOR = True
    refused = client.get("/api/v1/price-versions")
    assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
    assert refused.json()["detail"] == "a second factor is required: set one up at /account/2fa/"
    Authenticator.objects.create(user=User.objects.get(), type="totp", data={"secret": "sealed"})
    assert client.get("/api/v1/price-versions").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_new_second_factor_ends_sessions_that_were_opened_without_it(settings: Any, tmp_path: Path) -> None:
    """Else somebody who has the password alone waits in an open session until its owner sets the factor up."""
    factories.apply(tmp_path)
    factories.person("ann", "finance", password=PASSWORD)
    factories.person("ben", "finance")
    settings.REQUIRE_TWO_FACTOR = True
    own, stranger = signed_in(), signed_in()
    assert stranger.get("/close/")["Location"] == "/account/2fa/"
    own.post("/account/reauthenticate/", {"password": PASSWORD})
    secret = own.get("/account/2fa/totp/activate/").context["form"].secret
    own.post("/account/2fa/totp/activate/", {"code": code_for(secret)})
    assert own.get("/close/").status_code == 200
    assert stranger.get("/close/")["Location"].startswith("/login/")
    assert stranger.get("/api/v1/price-versions").status_code == 401


def test_a_session_ends_eight_hours_after_it_began_however_busy_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    factories.person("ann", "finance", password=PASSWORD)
    client = signed_in()
    for hours in (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9):  # 7.2 hours in all, never an hour of silence
        later(monkeypatch, hours=hours)
        assert client.get("/account/2fa/").status_code == 200
    later(monkeypatch, hours=0.9)
    assert client.get("/account/2fa/")["Location"].startswith("/login/")


def test_a_session_ends_after_an_hour_in_which_nothing_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    factories.person("ann", "finance", password=PASSWORD)
    client = signed_in()
    later(monkeypatch, minutes=59)
    assert client.get("/account/2fa/").status_code == 200
    later(monkeypatch, minutes=61)
    assert client.get("/account/2fa/")["Location"].startswith("/login/")


def test_who_signs_in_and_who_tries_to_is_in_the_audit_log(provider: Provider) -> None:
    ann = factories.person("ann", "finance", password=PASSWORD)
    signed_in(password="wrong")
    client = signed_in()
    client.post("/logout/")
    sign_in_there(provider, sub="42", groups=[])
    by_password = {"channel": "portal", "account": ann.pk, "session": "password"}
    mei = User.objects.get(username="mei")
    assert entries("sign_in", "sign_in_failed", "sign_out") == [
        ("database:suanpan", "sign_in_failed", "ann", {"address": "127.0.0.1", "acting": {"channel": "portal"}}),
        ("ann", "sign_in", "ann", {"address": "127.0.0.1", "by": "password", "acting": by_password}),
        ("ann", "sign_out", "ann", {"address": "127.0.0.1", "acting": by_password}),
        ("mei", "sign_in", "mei", {"address": "127.0.0.1", "by": "identity provider", "acting": {
            "channel": "portal", "account": mei.pk, "session": "identity provider", "person": "42",
        }}),
    ]  # fmt: skip


def test_roles_that_the_provider_gives_are_entered_with_the_person_there(provider: Provider) -> None:
    sign_in_there(provider, sub="42", groups=["gpu-finance"])
    assert entries("roles_from_provider") == [("identity provider", "roles_from_provider", "mei", {
        "roles": ["finance"], "acting": {"channel": "identity provider", "person": "42"},
    })]  # fmt: skip


def test_a_password_that_is_set_by_a_mailed_link_was_set_by_no_session(mailoutbox: list[Any], settings: Any) -> None:
    """Whoever has the link acts; that it is an account's own says nothing of a session."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    ann = factories.person("ann", "finance", password=PASSWORD)
    User.objects.update(email="ann@example.org")
    client = Client()
    client.post("/account/password/reset/", {"email": "ann@example.org"})
    link = re.search(r"http://testserver(/\S+)", mailoutbox[0].body)
    assert link is not None
    form = client.get(link[1])["Location"]
    client.post(form, {"password1": "twenty beads of boxwood", "password2": "twenty beads of boxwood"})
    assert entries("password_reset") == [
        ("ann", "password_reset", "ann", {"acting": {"channel": "portal", "account": ann.pk}}),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_change_of_the_second_factor_is_in_the_audit_log() -> None:
    factories.person("ann", "finance", password=PASSWORD)
    client = signed_in()
    client.post("/account/reauthenticate/", {"password": PASSWORD})
    secret = client.get("/account/2fa/totp/activate/").context["form"].secret
    client.post("/account/2fa/totp/activate/", {"code": code_for(secret)})
    client.post("/account/2fa/totp/deactivate/")
    assert [(action, detail["kind"]) for _, action, _, detail in entries("second_factor_add", "second_factor_remove")] == [
        ("second_factor_add", "totp"), ("second_factor_add", "recovery_codes"),
        ("second_factor_remove", "totp"), ("second_factor_remove", "recovery_codes"),
    ]  # fmt: skip
