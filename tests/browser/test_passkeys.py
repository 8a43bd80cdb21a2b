"""A passkey in Chromium's own virtual authenticator: added, used to sign in, and enough as a second factor."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect

from billing.tenancy.models import AuditEntry
from tests import factories
from tests.browser.polling import wait_until_all_there
from tests.factories.browser import open_menu, picture

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "an abacus has beads"
AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
    "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip


@pytest.fixture
def phone(browser: Browser, live_server: Any, tmp_path: Path, settings: Any) -> Iterator[Page]:
    """A page on a phone that keeps passkeys; the portal asks everybody for a second factor."""
    factories.apply(tmp_path)
    factories.person("ann", "finance", password=PASSWORD)
    settings.REQUIRE_TWO_FACTOR = True
    context = browser.new_context(base_url=live_server.url, viewport={"width": 390, "height": 844})
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda said: failures.append(said.text) if "Security Policy" in said.text else None)
    page.on("console", lambda said: failures.append(said.text) if "NotAllowedError" in said.text else None)
    session = context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    yield page
    wait_until_all_there(page)
    context.close()
    assert failures == []


def with_password(page: Page) -> None:
    page.goto("/login/")
    page.get_by_label("User name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("main").get_by_role("button", name="Sign in", exact=True).click()


def add_passkey(page: Page) -> None:
    with_password(page)
    expect(page).to_have_url("/account/2fa/")
    picture(page, "second-factors")
    page.locator("section", has_text="Security Keys").get_by_role("link", name="Add").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Passwordless").check()
    picture(page, "passkey-add")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_label("Unused codes")).to_be_visible()  # recovery codes come with the first factor


def sign_out(page: Page) -> None:
    page.goto("/close/")
    open_menu(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_somebody_adds_a_passkey_and_signs_in_with_nothing_else(phone: Page) -> None:
    add_passkey(phone)
    phone.goto("/account/2fa/webauthn/")
    expect(phone.locator("table")).to_contain_text("Passkey")
    picture(phone, "passkeys")
    overflow = phone.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    sign_out(phone)
    picture(phone, "sign-in-with-passkey")
    phone.get_by_role("button", name="Use a passkey").click()
    expect(phone.get_by_role("button", name="Menu")).to_be_visible()
    answer = phone.request.get("/api/v1/price-versions")
    assert answer.status == 200
    used = AuditEntry.objects.filter(action="sign_in").order_by("id").values_list("detail__by", flat=True)
    assert list(used) == ["password", "passkey"]


def test_a_passkey_is_the_second_factor_after_a_password(phone: Page) -> None:
    add_passkey(phone)
    sign_out(phone)
    with_password(phone)
    expect(phone).to_have_url("/account/2fa/authenticate/")
    phone.get_by_role("button", name="Use a security key").click()
    expect(phone.get_by_role("button", name="Menu")).to_be_visible()


def test_a_passkey_of_a_person_of_the_provider_opens_nothing(phone: Page) -> None:
    """Whoever left the company is refused by the provider; a passkey must not let them in beside it."""
    add_passkey(phone)
    sign_out(phone)
    SocialAccount.objects.create(user=User.objects.get(), provider="oidc", uid="42")
    phone.get_by_role("button", name="Use a passkey").click()
    expect(phone.get_by_role("alert")).to_contain_text("signs in through the identity provider")
    phone.goto("/close/")
    expect(phone.get_by_role("heading", name="Sign in")).to_be_visible()
