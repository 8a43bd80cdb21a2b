"""Tokens of one's own: everybody makes them in person, they may no more than their owner, and only they prove who it is."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from billing.rates.models import PriceDraft
from billing.tenancy import tokens
from billing.tenancy.models import ApiToken, AuditEntry, Membership, Team
from billing.tenancy.tokens import TokenError, api_token_create
from tests import factories
from tests.factories.api import bearer
from tests.factories.commands import Manage
from tests.factories.price_api import BODY, Caller

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
SECRET = re.compile(r'<code class="mono" id="secret">([^<]+)</code>')
OFFERED = re.compile(r'<input type="checkbox" name="scopes" value="([a-z]+:[a-z]+)"')
FIELDS = {"name": "dashboard", "scopes": ["invoices:read"], "team": "", "days": "30"}


@pytest.fixture(scope="module", autouse=True)
def set_up(for_all_tests: Path) -> None:
    factories.apply(for_all_tests)


def secret_of(answer: object) -> str:
    (found,) = SECRET.findall(answer.content.decode())  # type: ignore[attr-defined]
    return str(found)


def teams_read(presented: str) -> list[str]:
    tokens._recent.clear()
    answer = Client().get("/api/v1/teams", headers=bearer(presented))
    assert answer.status_code in (200, 403), answer.content
    return [team["code"] for team in answer.json()["results"]] if answer.status_code == 200 else []


def submitted(maker: str) -> None:
    asked = Caller(factories.signed_in(maker))
    assert asked("POST", "price-versions", BODY).status_code == 201
    assert asked("POST", "price-versions/2099-01/submit", {"reason": "new year"}).status_code == 200


def test_somebody_makes_rotates_and_ends_a_token_of_their_own() -> None:
    """It belongs to them whatever is sent; the next one may do the same, and the old one ends within a week."""
    lea, ben = factories.person("lea", "lead", team="nlp"), factories.person("ben", "finance")
    page = factories.signed_in(lea)
    first = secret_of(page.post("/tokens/new/", {**FIELDS, "owner": "ben"}))
    assert teams_read(first) == ["nlp"]
    token = ApiToken.objects.get()
    assert token.expires_at is not None
    assert (token.owner, (token.expires_at - timezone.now()).days) == (lea, 29)
    second = secret_of(page.post(f"/tokens/{token.pk}/rotate/"))
    old, new = ApiToken.objects.order_by("id")
    assert (new.owner, new.scopes, teams_read(second)) == (lea, old.scopes, ["nlp"])
    assert old.expires_at is not None
    assert old.expires_at < timezone.now() + timedelta(days=7, minutes=1)
    others = factories.signed_in(ben)
    assert [others.post(f"/tokens/{new.pk}/{step}/").status_code for step in ("rotate", "revoke")] == [404, 404]
    assert "dashboard" not in others.get("/tokens/").content.decode()
    for pk in (old.pk, new.pk):
        assert page.post(f"/tokens/{pk}/revoke/").status_code == 302
    assert (teams_read_status(first), teams_read_status(second)) == (401, 401)
    made = AuditEntry.objects.filter(action="api_token_create").values_list("actor", "detail__acting__session")
    assert list(made) == [("lea", "password")] * 2


def teams_read_status(presented: str) -> int:
    tokens._recent.clear()
    return Client().get("/api/v1/teams", headers=bearer(presented)).status_code


def test_nobody_makes_a_token_for_what_they_may_not_do() -> None:
    lea, tom = factories.person("lea", "lead", team="nlp"), factories.person("tom", "auditor")
    offered = {
        user.username: OFFERED.findall(factories.signed_in(user).get("/tokens/").content.decode())
        for user in (lea, tom, factories.person("ben", "approver"))
    }
    reading = ["usage:read", "prices:read", "invoices:read"]
    assert {name: sorted(scopes) for name, scopes in offered.items()} == {
        "lea": sorted(reading), "tom": sorted(reading), "ben": sorted([*reading, "prices:approve"]),
    }  # fmt: skip
    scopes = ("prices:approve", "usage:write", "budgets:read", "people:provision")
    for wrong in (*({"scopes": [scope]} for scope in scopes), {"team": "cv"}, {"days": "0"}):
        assert factories.signed_in(lea).post("/tokens/new/", {**FIELDS, **wrong}).status_code == 409
    assert factories.signed_in(factories.person("new")).get("/tokens/").status_code == 403
    rights = {"prices:write": "edit_prices", "people:provision": "manage_people", "usage:correct": "operate"}
    for scope, right in rights.items():
        with pytest.raises(TokenError, match=f"scope {scope}: tom has no right {right}"):
            api_token_create(name="x", scopes=[scope], actor="ada", owner=tom)
    assert not ApiToken.objects.exists()


def test_a_token_of_a_mover_does_what_they_may_do_now() -> None:
    """Without anybody revoking it; what is confined to a team that they left sees nothing."""
    mia = factories.person("mia", "finance")
    reads = factories.own_token(mia, "reads", "invoices:read")[1]
    writes = Caller(Client(), bearer(factories.own_token(mia, "writes", "prices:write")[1]))
    confined = factories.own_token(mia, "cv", "invoices:read", team=Team.objects.get(code="cv"))[1]
    assert (teams_read(reads), teams_read(confined)) == (["cv", "nlp", "platform"], ["cv"])
    assert writes("POST", "price-versions", BODY).status_code == 201
    Membership.objects.filter(user=mia).update(role="viewer", team=Team.objects.get(code="nlp"))
    assert (teams_read(reads), teams_read(confined)) == (["nlp"], [])
    assert writes("POST", "price-versions", {**BODY, "name": "2099-02"}).status_code == 403
    Membership.objects.filter(user=mia).delete()
    assert (teams_read(reads), teams_read(confined)) == ([], [])


def test_a_token_that_was_made_in_a_name_alone_approves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ann makes a price list and then, at a command, a token as ben: neither there nor by the API is she ben with it."""
    factories.person("ann", "finance", "admin")
    ben = factories.person("ben", "approver")
    submitted("ann")
    call_command("token_create", "as ben", "--scope", "usage:read", "--by", "ben")
    monkeypatch.setenv("SUANPAN_TOKEN", capsys.readouterr().out.strip())
    for command in (["price_version", "approve", "2099-01"], ["token_create", "x", "--scope", "prices:approve"]):
        assert "in person" in Manage(capsys)(*command, "--by", "ben").error
    older, presented = factories.own_token(ben, "older", "prices:approve")
    ApiToken.objects.filter(pk=older.pk).update(name="made otherwise")
    tokens._recent.clear()
    assert Caller(Client(), bearer(presented))("POST", "price-versions/2099-01/approve", {}).status_code == 403
    assert PriceDraft.objects.get().state == "submitted"


def test_a_token_that_somebody_made_in_person_makes_another_one_at_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So whoever approves there renews it there, and the audit log says with what they showed who they are."""
    factories.person("ann", "finance")
    ben = factories.person("ben", "approver")
    submitted("ann")
    monkeypatch.setenv("SUANPAN_TOKEN", secret_of(factories.signed_in(ben).post("/tokens/new/", FIELDS)))
    call_command("token_create", "next", "--scope", "usage:read", "--by", "ben")
    monkeypatch.setenv("SUANPAN_TOKEN", capsys.readouterr().out.strip())
    call_command("price_version", "approve", "2099-01", "--by", "ben")
    assert PriceDraft.objects.get().state == "approved"
    entry = AuditEntry.objects.filter(actor="ben", action="price_draft_approved").get()
    assert (entry.detail["acting"]["channel"], entry.detail["acting"]["session"]) == ("command", "own token")
    refused = Manage(capsys)("price_version", "approve", "2099-01", "--by", "ann").error
    assert "SUANPAN_TOKEN: must be an API token of ann" in refused
    assert User.objects.get(username="ben").api_tokens.count() == 2


def test_a_token_of_somebody_asks_about_the_budgets_of_their_teams_alone() -> None:
    lea = factories.person("lea", "lead", team="nlp")
    asked = "/api/v1/budgets/check?source=litellm-hq&consumer=nlp-key-1&reserve=0"
    own = factories.own_token(lea, "own", "budgets:read")[1]
    assert Client().get(asked, headers=bearer(own)).status_code == 200
    Membership.objects.filter(user=lea).update(team=Team.objects.get(code="cv"))
    tokens._recent.clear()
    assert Client().get(asked, headers=bearer(own)).status_code == 404
