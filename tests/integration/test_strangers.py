"""What strangers meet: a description made once, days that are none, deep nesting, and no page without a role."""

import time
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from billing.tenancy.tokens import api_token_create
from pricing.documents import DocumentError, parse_yaml
from tests import factories
from tests.factories.api import bearer
from tests.factories.roles import MATRIX, SIGNED_IN
from tests.factories.threads import at_once

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def test_eight_ask_for_the_description_of_the_api_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is made once, for it costs a second of a processor and takes no account."""
    from drf_spectacular.generators import SchemaGenerator

    from billing.api import schema

    made = list[float]()
    parse = SchemaGenerator.parse
    monkeypatch.setattr(SchemaGenerator, "parse", lambda *a, **k: (made.append(time.monotonic()), parse(*a, **k))[1])
    monkeypatch.setattr(schema.OneDescription, "_made", {})
    answers = at_once(*[lambda: Client().get("/api/v1/schema/", headers={"accept": "application/json"})] * 8)
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.content for answer in answers}) == 1
    assert len(made) == 1


@pytest.mark.parametrize(
    ("first", "until", "status"),
    [("0001-01-01", "0001-01-02", 400), ("9999-12-30", "9999-12-31", 200), ("9999-10-01", "9999-12-31", 200),
     ("0001-01-01", "9999-12-31", 400)],
)  # fmt: skip
def test_days_at_the_end_of_time_are_no_error_of_ours(tmp_path: Path, first: str, until: str, status: int) -> None:
    factories.apply(tmp_path)
    headers = bearer(api_token_create(name="reads", scopes=["usage:read"], actor="tests")[1])
    assert Client().get(f"/api/v1/usage/summary?from={first}&until={until}", headers=headers).status_code == status


@pytest.mark.parametrize("text", ["[" * 10_000, "{a: " * 10_000, "- " * 10_000, "a: [" * 3_000])
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(DocumentError, match="nested too deeply"):
        parse_yaml(text, "document")
    assert time.process_time() - began < 0.3


def test_what_is_refused_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    factories.apply(tmp_path)
    client = factories.signed_in(factories.person("eve", "viewer"))
    assert client.get("/people/").status_code == 403
    assert client.get("/teams/nothing/").status_code == 404
    told = [record for record in caplog.records if record.name == "django.request"]
    lines = ["Forbidden (Permission denied): /people/", "Not Found: /teams/nothing/"]
    assert [record.getMessage() for record in told] == lines
    assert [record.exc_info for record in told] == [None, None]


def test_a_person_without_a_role_opens_the_overview_only(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    client, open_pages = factories.signed_in(factories.person("new")), list[str]()
    for route, (method, expected) in MATRIX.items():
        if method == "GET" and expected == SIGNED_IN and "<" not in route:
            answer = client.get(f"/{route}")
            assert answer.status_code in (200, 403), route
            open_pages += [route] if answer.status_code == 200 else []
    assert open_pages == ["overview/"]
    assert "NVIDIA-H800" not in client.get("/").content.decode()


def test_mails_of_accounts_come_from_the_address_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.MAIL_FROM == settings.DEFAULT_FROM_EMAIL
    factories.person("ann", "finance")
    User.objects.update(email="ann@example.org")
    monkeypatch.setattr(settings, "DEFAULT_FROM_EMAIL", "billing@example.org")
    assert Client().post("/account/password/reset/", {"email": "ann@example.org"}).status_code == 302
    assert [sent.from_email for sent in mail.outbox] == ["billing@example.org"]
