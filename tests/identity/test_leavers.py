"""Whoever left has no way back in: not by what is open, waiting, remembered or mailed, at no address of signing in."""

import re
import secrets
import time
from collections.abc import Callable

import httpx
import pytest
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.urls import get_resolver

from billing.tenancy.models import AuditEntry
from billing.tenancy.people import account_switch
from billing.tenancy.provisioning import Person, account_change, account_provision
from billing.tenancy.tokens import api_token_create
from tests.factories.identity import code_of
from tests.factories.roles import addresses
from tests.factories.servers import until
from tests.identity.conftest import CLIENT_ID, Browser, NewBrowser, Provider

pytestmark = pytest.mark.django_db(transaction=True)
SECOND_FACTOR = "/account/2fa/authenticate/"
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
OWN = "an abacus has beads"


def second_factor_added() -> None:
    TOTP.activate(User.objects.get(), generate_totp_secret())


def waiting(browser: NewBrowser) -> Browser:
    """A browser that the provider has let in, and that waits for the second factor here."""
    made = browser()
    assert made.sign_in("mei").url.path == SECOND_FACTOR
    return made


def logout_token(provider: Provider, **named: str) -> dict[str, str]:
    now = int(time.time())
    claims = {"iss": provider.url, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8),
              "events": {LOGOUT: {}}, **named}  # fmt: skip
    return {"logout_token": provider.signed(claims)}


def logged_out_by_the_provider(provider: Provider, site: str) -> None:
    provider.people()
    token = logout_token(provider, sub="mei")
    assert httpx.post(f"{site}/account/oidc/oidc/backchannel-logout/", data=token).status_code == 200


def withdrawn_by_scim(provider: Provider, site: str) -> None:
    """The provider still lets her in: the account here is off."""
    known = account_provision(person=Person(external_id="mei", user_name="mei"), actor="token:directory")
    account_change(user_id=known.user_id, person=Person(active=False), actor="token:directory")


def switched_off_here(provider: Provider, site: str) -> None:
    """The provider still lets her in."""
    account_switch(user_id=User.objects.get().pk, active=False, actor="ada")


LEAVING: dict[str, Callable[[Provider, str], None]] = {
    "logged out by the provider": logged_out_by_the_provider, "withdrawn by SCIM": withdrawn_by_scim,
    "switched off here": switched_off_here,
}  # fmt: skip


def test_a_sign_in_that_waits_for_its_second_factor_ends_with_the_session_at_the_provider(
    provider: Provider, browser: NewBrowser
) -> None:
    provider.people(mei={"groups": ["gpu-finance"]})
    mei = browser()
    mei.sign_in("mei")
    second_factor_added()
    laptop, phone = waiting(browser), waiting(browser)
    laptop.sign_out_at_provider()
    until(lambda: AuditEntry.objects.filter(action="sign_out_by_provider", subject="mei").exists())
    assert laptop.post(SECOND_FACTOR, code=code_of(User.objects.get())).url.path == "/account/login/"
    assert not laptop.is_signed_in()
    phone.post(SECOND_FACTOR, code=code_of(User.objects.get()))
    assert (phone.is_signed_in(), mei.is_signed_in()) == (True, True)


@pytest.mark.parametrize("how", sorted(LEAVING))
def test_whoever_left_has_no_way_back_in(how: str, provider: Provider, browser: NewBrowser) -> None:
    """Whatever they send to whichever address of signing in, from a browser that was signed in, waited or is new."""
    provider.people(mei={"groups": ["gpu-finance"], "email": "mei@example.org"})
    opened = browser()
    opened.sign_in("mei")
    second_factor_added()
    person = User.objects.get()
    person.set_password(OWN)  # as only a fault could
    person.save()
    link = f"/account/password/reset/key/{user_pk_to_url_str(person)}-{default_token_generator.make_token(person)}/"
    own = api_token_create(name="mei's", scopes=["usage:read"], actor="mei", owner=person)[1]
    browsers = {"signed in": opened, "waiting": waiting(browser), "new": browser()}
    form = browsers["new"].http.get(link)
    assert form.url.path.endswith("-set-password/")

    LEAVING[how](provider, opened.site)
    browsers["waiting"].post(SECOND_FACTOR, code=code_of(person))  # at once: any other page forgets what waits
    assert {name: held.is_signed_in() for name, held in browsers.items()} == dict.fromkeys(browsers, False)
    browsers["new"].post(form.url.path, password1="twenty beads of boxwood", password2="twenty beads of boxwood")
    person.refresh_from_db()
    passwords = {word for word in (OWN, "twenty beads of boxwood") if person.check_password(word)}
    assert len(passwords) == 1
    everything = {
        "login": "mei", "password": passwords.pop(), "email": "mei@example.org", "code": code_of(person), "action": "login",
        "password1": OWN, "password2": OWN, "username": "mei",
    }  # fmt: skip
    tried = [address for address in paths(person, link) if "logout" not in address]
    assert len(tried) > 20
    for name, held in browsers.items():
        for address in tried:
            held.http.get("/login/")
            held.http.get(address)
            held.post(address, **everything)
            assert not held.is_signed_in(), (name, address)
    if how != "logged out by the provider":
        headers = {"Authorization": f"Bearer {own}"}
        until(lambda: httpx.get(f"{opened.site}/api/v1/teams", headers=headers).status_code == 401, seconds=10)
    assert not AuditEntry.objects.filter(action="sign_in", id__gt=left_at()).exists()


def left_at() -> int:
    return AuditEntry.objects.filter(action__in=("sign_out_by_provider", "account_disable")).latest("id").pk


def paths(person: User, link: str) -> list[str]:
    """Every address below account/, and where a password is asked for."""
    routes = [route for route in addresses(get_resolver().url_patterns) if route.startswith("account/")]
    filled = [re.sub(r"<int:\w+>", "1", route).replace("<str:provider_id>", "oidc") for route in routes]
    return ["/login/", "/admin/login/", link, *(f"/{route}" for route in filled if not re.search(r"[<(^]", route))]
