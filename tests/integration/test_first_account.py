"""The first account of an installation is made by its set-up file; later people are invited, and choose a password."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.core import mail
from django.core.management import call_command
from django.test import Client

from billing.tenancy.access import Right, access_of
from billing.tenancy.models import AuditEntry
from tests import factories
from tests.factories.commands import Manage

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FIRST = {"user": "ada", "name": "Ada Li", "email": "ada@example.org"}
ONCE = re.compile(r"^first account: sign in as ada with (\S+), which is shown this once$", re.MULTILINE)
SECRET = re.compile(r'<code class="mono" id="secret">([^<]+)</code>')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "first.yaml"
    path.write_text(yaml.safe_dump({"billing": factories.SET_UP["billing"], "first_account": FIRST}))
    return path


def signed_in(name: str, password: str) -> bool:
    return Client().post("/login/", {"login": name, "password": password}).status_code == 302


def test_the_set_up_file_makes_the_first_account_and_says_its_password_once(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It manages people and is no superuser; with it, commands that want an account can run."""
    call_command("apply", str(file), "--dry-run")
    said = capsys.readouterr().out
    assert "would change: first account ada: admin" in said
    assert ("sign in" in said, User.objects.exists()) == (False, False)
    call_command("apply", str(file))
    (password,) = ONCE.findall(capsys.readouterr().out)
    ada = User.objects.get()
    assert (ada.get_full_name(), ada.email, ada.is_superuser, ada.is_staff) == ("Ada Li", "ada@example.org", False, False)
    assert access_of(ada).may(Right.MANAGE_PEOPLE)
    assert signed_in("ada", password)
    for _ in range(2):
        assert "0 changes, 2 unchanged" in Manage(capsys)("apply", str(file), "--by", "ada").out
    ben = factories.person("ben")
    call_command("role", "grant", "ben", "finance", "--by", "ada")
    assert access_of(User.objects.get(pk=ben.pk)).may(Right.CLOSE)
    assert AuditEntry.objects.filter(action__in=["account_create", "role_grant"]).count() == 3
    assert password not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_a_program_reads_the_first_password(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(Manage(capsys)("apply", str(file), "--json").out)
    assert signed_in("ada", answer["first_password"])
    call_command("apply", str(file), "--json")
    assert "first_password" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("who", ["role", "superuser"])
def test_where_somebody_manages_people_the_set_up_file_makes_nobody(
    who: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may change the file must not make themselves an admin by it."""
    if who == "role":
        factories.person("root", "admin")
    else:
        User.objects.create_superuser("root")
    call_command("apply", str(file))
    assert ("first account" in capsys.readouterr().out, User.objects.count()) == (False, 1)


@pytest.mark.parametrize(
    ("first", "why"),
    [({}, "first_account.user: is missing"), ({"user": "a b"}, "first_account.user: user name 'a b'"),
     ({"user": "ben"}, "first_account.user: user name 'ben': is taken"), ({"user": "x", "role": "finance"}, "role")],
)  # fmt: skip
def test_a_first_account_that_cannot_be_is_refused(
    first: dict[str, Any], why: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factories.person("ben", "finance")
    file.write_text(yaml.safe_dump({"billing": factories.SET_UP["billing"], "first_account": first}))
    assert why in Manage(capsys)("apply", str(file)).error
    assert User.objects.count() == 1


@pytest.fixture
def ada(tmp_path: Path, settings: Any) -> Client:
    factories.apply(tmp_path)
    settings.MAIL_CONFIGURED, settings.PORTAL_URL = True, "https://billing.example.org"
    return factories.signed_in(factories.person("ada", "admin"))


def test_whoever_is_invited_chooses_a_password_that_nobody_else_saw(ada: Client) -> None:
    made = ada.post("/people/new/", {"username": "ben", "full_name": "Ben Li", "email": "ben@example.org"})
    assert (made.status_code, SECRET.findall(made.content.decode())) == (200, [])
    assert "An invitation went to ben@example.org" in made.content.decode()
    (invitation,) = mail.outbox
    assert invitation.to == ["ben@example.org"]
    (link,) = re.findall(r"https://billing\.example\.org(/account/password/reset/key/\S+)", invitation.body)
    ben = Client()
    form = ben.get(link)
    assert form.status_code == 302
    chosen = {"password1": "beads on the wire", "password2": "beads on the wire"}
    assert ben.post(form["Location"], chosen).status_code == 302
    assert signed_in("ben", "beads on the wire")
    assert Client().get(link).status_code == 200  # it says that the link was used
    entry = AuditEntry.objects.get(action="account_create")
    assert (entry.actor, entry.detail["email"], entry.detail["invited"]) == ("ada", "ben@example.org", True)


def test_without_an_address_or_a_mail_server_the_first_password_is_shown(ada: Client, settings: Any) -> None:
    assert len(SECRET.findall(ada.post("/people/new/", {"username": "ben"}).content.decode())) == 1
    settings.MAIL_CONFIGURED = False
    made = ada.post("/people/new/", {"username": "cem", "email": "cem@example.org"})
    assert (len(SECRET.findall(made.content.decode())), mail.outbox) == (1, [])


def test_an_invitation_that_cannot_be_sent_makes_no_account(ada: Client, settings: Any) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_PORT = "django.core.mail.backends.smtp.EmailBackend", 1
    refused = ada.post("/people/new/", {"username": "ben", "email": "ben@example.org"})
    assert (refused.status_code, "the invitation could not be sent" in refused.content.decode()) == (409, True)
    assert not User.objects.filter(username="ben").exists()
