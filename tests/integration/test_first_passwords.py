"""A password that somebody else has seen is changed at the first sign-in; nobody makes another superuser on the way."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from billing.local.process_list import account_put, demonstration_accounts
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import AuditEntry, FirstPassword, Membership
from billing.tenancy.people import account_create
from tests import factories
from tests.factories.commands import Manage

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
OWN = "beads on the wire"
CHANGE = "/account/password/change/"
MADE = re.compile(r"^ben: sign in with (\S+), which is shown this once and changed at the first sign-in$", re.MULTILINE)


@pytest.fixture(autouse=True)
def teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUANPAN_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    factories.apply(tmp_path)


def sign_in(name: str, password: str) -> Client:
    client = Client()
    assert client.post("/login/", {"login": name, "password": password}).status_code == 302
    return client


def leads_to_change(client: Client, path: str = "/") -> bool:
    answer = client.get(path)
    return answer.status_code == 302 and answer["Location"] == CHANGE


def change(client: Client, old: str, new: str) -> Any:
    return client.post(CHANGE, {"oldpassword": old, "password1": new, "password2": new})


def test_an_account_of_the_command_opens_nothing_until_its_password_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    made = Manage(capsys)("account_create", "ben", "--name", "Ben Li", "--mail", "ben@example.org", "--role", "finance")
    (password,) = MADE.findall(made.out)
    ben = User.objects.get(username="ben")
    assert (ben.get_full_name(), ben.email, ben.is_superuser, ben.is_staff) == ("Ben Li", "ben@example.org", False, False)
    assert list(ben.memberships.values_list("role", "team")) == [("finance", None)]
    window = sign_in("ben", password)
    assert [leads_to_change(window, path) for path in ("/", "/close/", "/admin/", "/account/2fa/", "/people/")] == [True] * 5
    refused = window.get("/api/v1/price-versions")
    assert (refused.status_code, "first password" in refused.json()["detail"]) == (403, True)
    assert "Somebody else knows the password" in window.get(CHANGE).content.decode()
    same = change(window, password, password)
    assert (same.status_code, "Choose another password" in same.content.decode()) == (200, True)
    assert leads_to_change(window)
    done = change(window, password, OWN)
    assert (done.status_code, done["Location"]) == (302, "/")
    assert (window.get("/close/").status_code, window.get("/api/v1/price-versions").status_code) == (200, 200)
    assert sign_in("ben", OWN).get("/close/").status_code == 200
    assert not FirstPassword.objects.exists()
    assert password not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_two_windows_with_a_first_password_are_not_both_open_after_one_changed_it() -> None:
    _, password = account_create(username="ben", full_name="", email="", actor="tests")
    one, other = sign_in("ben", password), sign_in("ben", password)
    change(one, password, OWN)
    assert other.get("/people/")["Location"].startswith("/login/")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--name", "Ben", "--mail", "no address"], "mail address 'no address': "),
        (["--name", "n" * 151, "--mail", "ben@example.org"], "full name 'nnn"),
        (["--name", " ", "--mail", "ben@example.org"], "--name ' ': must not be empty"),
        (["--name", "Ben", "--mail", ""], "--mail '': must not be empty"),
        (["--name", "Ben"], "--mail"),
        (["--name", "Ben", "--mail", "b@example.org", "--role", "king"], "role 'king': choose from"),
        (["--name", "Ben", "--mail", "b@example.org", "--role", "lead", "--team", "x"], "--team 'x': no such team"),
        (["--name", "Ben", "--mail", "b@example.org", "--role", "finance", "--team", "nlp"], "held for all teams"),
        (["--name", "Ben", "--mail", "b@example.org", "--team", "nlp"], "--team 'nlp': takes a --role"),
        (["--name", "Ben", "--mail", "b@example.org", "--by", "zoe"], "--by 'zoe': no active account"),
        (["--name", "Ben", "--mail", "b@example.org", "--by", "fay"], "takes an account with the right manage_people"),
    ],
)  # fmt: skip
def test_an_account_that_cannot_be_is_refused_with_its_field(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    factories.person("fay", "finance")
    refused = Manage(capsys)("account_create", "ben", *options)
    assert (refused.status, why in refused.error) == (2, True)
    assert not User.objects.filter(username="ben").exists()


def test_a_name_that_is_taken_is_refused_and_a_program_reads_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("account_create", "ben", "--name", "Ben", "--mail", "ben@example.org", "--role", "lead", "--team", "nlp")
    made = json.loads(Manage(capsys)(*wanted, "--json").out)
    assert {**made, "first_password": ""} == {"user": "ben", "role": "lead", "team": "nlp", "first_password": ""}
    sign_in("ben", made["first_password"])
    again = Manage(capsys)(*wanted)
    assert (again.status, "user name 'ben': is taken" in again.error) == (2, True)


def test_a_password_that_an_admin_sets_is_a_first_one_and_an_own_one_is_not() -> None:
    root, ben = User.objects.create_superuser("root"), factories.person("ben", "viewer", password="as it was once")
    window = factories.signed_in(root)
    new = {"password1": "seen by root", "password2": "seen by root", "usable_password": "true"}
    for person, first in ((ben, True), (root, False)):
        answer = window.post(f"/admin/auth/user/{person.pk}/password/", {**new, "set-password": "1"})
        assert (answer.status_code, FirstPassword.objects.filter(user=person).exists()) == (302, first)
    assert leads_to_change(sign_in("ben", "seen by root"))
    made = {"username": "cem", "password1": "seen by root", "password2": "seen by root", "usable_password": "true"}
    memberships = {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
    assert window.post("/admin/auth/user/add/", {**made, **memberships}).status_code == 302
    assert leads_to_change(sign_in("cem", "seen by root"))


def test_nobody_becomes_a_superuser_in_the_administration_and_one_can_be_made_none() -> None:
    root, other = User.objects.create_superuser("root"), User.objects.create_superuser("other")
    ben, window = factories.person("ben", "viewer"), factories.signed_in(root)
    for person, wanted, becomes in ((ben, "on", False), (root, "", True), (other, "", False)):
        page = window.get(f"/admin/auth/user/{person.pk}/change/").context["adminform"].form
        data = {name: page.initial.get(name) or "" for name in page.fields if name != "password"}
        data |= {"is_active": "on", "is_superuser": wanted, "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        data |= {"last_login_0": "", "last_login_1": "", "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
        answer = window.post(f"/admin/auth/user/{person.pk}/change/", {key: value for key, value in data.items() if value})
        assert answer.status_code == 302, answer.context["errors"]
        person.refresh_from_db()
        assert person.is_superuser is becomes


def test_an_installation_has_one_first_account(capsys: pytest.CaptureFixture[str]) -> None:
    """After that of the set-up file neither `up` nor the demonstration makes a superuser."""
    factories.person("ada", "admin")
    finance, controller = demonstration_accounts()
    assert demonstration_accounts() == (finance, controller)
    assert not User.objects.filter(is_superuser=True).exists()
    held = Membership.objects.exclude(user__username="ada").order_by("user__username", "role")
    assert list(held.values_list("user__username", "role")) == [
        ("controller", "approver"), ("finance", "admin"), ("finance", "finance"),
    ]  # fmt: skip


def test_the_demonstration_has_one_superuser_where_there_is_nobody() -> None:
    finance, controller = demonstration_accounts()
    assert demonstration_accounts() == (finance, controller)
    assert list(User.objects.filter(is_superuser=True).values_list("username", flat=True)) == ["finance"]
    assert access_of(User.objects.get(username="controller")).may(Right.APPROVE)
    assert list(Membership.objects.values_list("user__username", "role")) == [("controller", "approver")]
    window = sign_in(*finance)
    assert leads_to_change(window)
    change(window, finance[1], OWN)
    assert account_put(username="finance", staff=True) == ("finance", "")


def test_the_menu_leads_to_the_page_where_a_password_is_changed() -> None:
    ada = factories.person("ada", "admin", password=OWN)
    assert f'href="{CHANGE}"' in factories.signed_in(ada).get("/people/").content.decode()
    zoe = factories.person("zoe", "admin")
    assert CHANGE not in factories.signed_in(zoe).get("/people/").content.decode()


def test_up_makes_no_admin_beside_the_first_account_of_the_set_up_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def run(self) -> int:
            return 0

    monkeypatch.setattr("billing.local.management.commands.up.Supervisor", Stopped)
    monkeypatch.setattr("billing.local.process_list.is_free", lambda _: True)
    monkeypatch.setattr("billing.local.management.commands.up.call_command", lambda *_, **__: None)
    factories.person("ada", "admin")
    call_command("up")
    assert list(User.objects.values_list("username", flat=True)) == ["ada"]
    User.objects.all().delete()
    call_command("up")
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, FirstPassword.objects.filter(user=admin).exists()) == ("admin", True, True)
