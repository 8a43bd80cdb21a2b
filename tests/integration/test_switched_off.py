"""A local account that is switched off: every way in that was open to it is closed, and none opens again by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from billing.tenancy import tokens
from billing.tenancy.models import ApiToken, Membership
from billing.tenancy.tokens import api_token_create
from tests import factories
from tests.factories.api import bearer
from tests.factories.identity import code_of
from tests.factories.passkeys import SITE, Passkey

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
PASSWORD, OTHER = "an abacus has beads", "twenty beads of boxwood"
SECOND_FACTOR = "/account/2fa/authenticate/"


@dataclass
class Ben:
    """Somebody with every way in that an account can have, made while it was on."""

    user: User
    opened: Client
    waiting: Client
    passkey: Passkey
    recovery: str
    reset: str
    token: str


def browser() -> Client:
    return Client(SERVER_NAME=SITE)


def with_password(client: Client, password: str = PASSWORD) -> Client:
    client.post("/login/", {"login": "ben", "password": password})
    return client


def is_in(client: Client) -> bool:
    return client.get("/teams/nlp/").status_code == 200


def with_code(client: Client, code: str) -> bool:
    client.post(SECOND_FACTOR, {"code": code})
    return is_in(client)


def with_the_passkey(ben: Ben) -> bool:
    client = browser()
    ben.passkey.sign_in(client)
    return is_in(client)


def with_the_mailed_link(ben: Ben) -> bool:
    client = browser()
    form = client.get(ben.reset).get("Location", ben.reset)
    client.post(form, {"password1": OTHER, "password2": OTHER})
    return with_code(with_password(client, OTHER), code_of(ben.user))


def with_the_token(ben: Ben) -> bool:
    tokens._recent.clear()
    return Client().get("/api/v1/teams", headers=bearer(ben.token)).status_code == 200


WAYS: dict[str, Callable[[Ben], bool]] = {
    "open session": lambda ben: is_in(ben.opened),
    "waiting for the second factor": lambda ben: with_code(ben.waiting, code_of(ben.user)),
    "password and second factor": lambda ben: with_code(with_password(browser()), code_of(ben.user)),
    "password and recovery code": lambda ben: with_code(with_password(browser()), ben.recovery),
    "passkey": with_the_passkey,
    "mailed link": with_the_mailed_link,
    "API token": with_the_token,
}
COME_BACK = {"password and second factor", "password and recovery code", "passkey", "mailed link"}
"""What somebody may use again who was switched on again."""


@pytest.fixture
def ben(tmp_path: Path) -> Ben:
    factories.apply(tmp_path)
    person = factories.person("ben", "viewer", team="nlp", password=PASSWORD)
    opened = with_password(browser())
    assert is_in(opened)
    TOTP.activate(person, generate_totp_secret())
    (recovery, *_) = RecoveryCodes.activate(person).get_unused_codes()
    person.refresh_from_db()
    reset = f"/account/password/reset/key/{user_pk_to_url_str(person)}-{default_token_generator.make_token(person)}/"
    token = api_token_create(name="ben's", scopes=["invoices:read"], actor="ben", owner=person)[1]
    return Ben(person, opened, with_password(browser()), Passkey(person), recovery, reset, token)


def on_the_page_of_people(person: User, active: bool) -> None:
    ada = User.objects.filter(username="ada").first() or factories.person("ada", "admin")
    assert factories.signed_in(ada).post(f"/people/{person.pk}/{'enable' if active else 'disable'}/").status_code == 302


def in_the_administration(person: User, active: bool) -> None:
    root = User.objects.filter(username="root").first() or User.objects.create_superuser("root")
    form = {"date_joined_0": "2026-10-01", "date_joined_1": "08:00:00", "email": "", "is_active": "on" if active else ""}
    unchanged = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    answer = factories.signed_in(root).post(f"/admin/auth/user/{person.pk}/change/", {**form, **unchanged})
    assert answer.status_code == 302, answer.context["errors"]


SWITCHES = {"people": on_the_page_of_people, "administration": in_the_administration}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("switch", [None, *sorted(SWITCHES)])
def test_each_way_in_is_open_until_the_account_is_switched_off(ben: Ben, way: str, switch: str | None) -> None:
    """Without a switch each lets ben in: a way that leads nowhere would prove nothing."""
    cache.clear()
    if switch is None:
        assert WAYS[way](ben)
        return
    SWITCHES[switch](ben.user, False)
    assert not User.objects.get(pk=ben.user.pk).is_active
    assert not WAYS[way](ben)
    SWITCHES[switch](ben.user, True)
    assert Membership.objects.filter(user=ben.user, role="viewer").exists()
    assert ApiToken.objects.get(name="ben's").revoked_at is not None
    if way not in COME_BACK:
        assert not WAYS[way](ben)


@pytest.mark.parametrize("way", sorted(COME_BACK))
def test_none_of_them_is_open_to_a_person_of_the_provider(ben: Ben, way: str) -> None:
    """The provider alone says whether somebody is still here: what an account has from an earlier time counts nothing."""
    cache.clear()
    SocialAccount.objects.create(user=ben.user, provider="oidc", uid="42")
    assert not WAYS[way](ben)


def test_no_browser_is_remembered_as_a_second_factor(ben: Ben) -> None:
    assert with_code(ben.waiting, code_of(ben.user))
    ben.waiting.post("/logout/")
    assert with_password(ben.waiting).get(SECOND_FACTOR).status_code == 200
    assert not is_in(ben.waiting)
