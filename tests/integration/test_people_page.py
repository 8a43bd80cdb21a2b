"""The page of people and access: whoever manages people needs no superuser, and changes nobody's own account."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from billing.tenancy.models import ApiToken, AuditEntry, Membership
from billing.tenancy.roles import roles_from_provider
from billing.tenancy.tokens import TokenError, api_token_create, api_token_find, api_token_revoke
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
SECRET = re.compile(r'<code class="mono" id="secret">([^<]+)</code>')


@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    factories.apply(for_all_tests)
    factories.person("ada", "admin")


@pytest.fixture
def ada(set_up: None, db: None) -> Client:
    """A platform admin, signed in; no superuser."""
    return factories.signed_in("ada")


def entries() -> list[tuple[str, str, str]]:
    """What the services noted, without what the database notes of rows."""
    found = AuditEntry.objects.exclude(action__startswith="row_").exclude(action__startswith="sign_").order_by("id")
    return list(found.filter(actor="ada").values_list("actor", "action", "subject"))


def test_a_new_account_signs_in_with_the_password_that_was_shown_once(ada: Client) -> None:
    made = ada.post("/people/new/", {"username": "ben", "full_name": "Ben Li", "email": "ben@example.org"})
    (password,) = SECRET.findall(made.content.decode())
    assert made.status_code == 200
    assert password not in ada.get("/people/").content.decode()
    role = {"user_id": User.objects.get(username="ben").pk, "role": "lead", "team": "nlp"}
    assert ada.post("/people/roles/", role).status_code == 302
    ben = Client()
    assert ben.post("/login/", {"login": "ben", "password": password}).status_code == 302
    own = {"oldpassword": password, "password1": "beads on the wire", "password2": "beads on the wire"}
    assert ben.post("/account/password/change/", own).status_code == 302
    assert (ben.get("/teams/nlp/").status_code, ben.get("/teams/cv/").status_code) == (200, 404)
    assert entries() == [("ada", "account_create", "ben"), ("ada", "role_grant", "ben")]
    taken = ada.post("/people/new/", {"username": "BEN"})
    assert (taken.status_code, "is taken" in taken.content.decode()) == (409, True)


def test_an_account_that_is_switched_off_ends_its_sessions_and_tokens(ada: Client) -> None:
    ben = factories.person("ben", "finance")
    session, presented = factories.signed_in(ben), api_token_create(name="b", scopes=["usage:read"], actor="t", owner=ben)[1]
    assert session.get("/close/").status_code == 200
    assert ada.post(f"/people/{ben.pk}/disable/").status_code == 302
    assert session.get("/close/").status_code == 302
    from billing.tenancy import tokens

    tokens._recent.clear()
    assert api_token_find(presented=presented, now=timezone.now()) is None
    assert ada.post(f"/people/{ben.pk}/enable/").status_code == 302
    assert session.get("/close/").status_code == 302
    assert api_token_find(presented=presented, now=timezone.now()) is None
    done = [("account_disable", "ben"), ("api_token_revoke", "b"), ("account_enable", "ben")]
    assert entries() == [("ada", *each) for each in done]


def test_nobody_changes_their_own_account_and_roles(ada: Client) -> None:
    """Also not as another account with the same mail address."""
    own, twin = User.objects.get(username="ada"), factories.person("ada.local")
    User.objects.filter(pk__in=[own.pk, twin.pk]).update(email="ada@example.org")
    page = ada.get("/people/").content.decode()
    assert f"/people/{own.pk}/disable/" not in page
    for person in (own, twin):
        for path, body in (
            (f"/people/{person.pk}/disable/", {}), ("/people/roles/", {"user_id": person.pk, "role": "approver"}),
        ):  # fmt: skip
            refused = ada.post(path, body)
            assert (refused.status_code, "somebody else changes your own account" in refused.content.decode()) == (409, True)
    held = Membership.objects.get(user=own)
    assert ada.post(f"/people/roles/{held.pk}/end/").status_code == 409
    assert list(Membership.objects.values_list("user__username", "role")) == [("ada", "admin")]


def test_a_role_is_given_for_a_team_and_taken_away(ada: Client) -> None:
    ben = factories.person("ben")
    assert ada.post("/people/roles/", {"user_id": ben.pk, "role": "viewer", "team": "cv"}).status_code == 302
    held = Membership.objects.get(user=ben)
    assert (held.role, held.team and held.team.code) == ("viewer", "cv")
    wrong = ada.post("/people/roles/", {"user_id": ben.pk, "role": "finance", "team": "cv"})
    assert "is held for all teams: leave the team out" in wrong.content.decode().replace("&#x27;", "'")
    assert ada.post(f"/people/roles/{held.pk}/end/").status_code == 302
    assert not Membership.objects.filter(user=ben).exists()


def test_a_role_of_the_identity_provider_is_taken_away_there(ada: Client) -> None:
    ben = factories.person("ben")
    roles_from_provider(user=ben, roles={("auditor", None)}, actor="oidc")
    held = Membership.objects.get(user=ben)
    refused = ada.post(f"/people/roles/{held.pk}/end/")
    assert (refused.status_code, "take it away there" in refused.content.decode()) == (409, True)
    assert f"/people/roles/{held.pk}/end/" not in ada.get("/people/").content.decode()


def test_who_could_draft_and_approve_is_shown(ada: Client) -> None:
    factories.person("ben", "finance", "approver")
    factories.person("cem", "finance", "auditor")
    text = "Could both draft and approve, though never the same thing"
    assert ada.get("/people/").content.decode().count(text) == 1
    rows = ada.get("/people/?table=people&as=csv").content.decode().splitlines()
    assert next(row for row in rows if row.startswith("ben,")).endswith(',"finance, approver","close, edit_prices"')


def test_a_token_is_shown_once_rotated_and_revoked(ada: Client) -> None:
    fields = {"name": "gateway hq", "scopes": ["usage:write"], "source": "litellm-hq", "owner": "ada", "days": "30"}
    (first,) = SECRET.findall(ada.post("/people/tokens/", fields).content.decode())
    token = ApiToken.objects.get()
    now = timezone.now()
    assert token.owner == User.objects.get(username="ada")
    assert timedelta(days=29) < token.expires_at - now <= timedelta(days=30)
    (second,) = SECRET.findall(ada.post(f"/people/tokens/{token.pk}/rotate/").content.decode())
    old, new = ApiToken.objects.order_by("id")
    assert (new.scopes, new.source, new.owner, new.name) == (old.scopes, old.source, old.owner, old.name)
    assert timedelta(days=6) < old.expires_at - now <= timedelta(days=7, minutes=1)
    assert timedelta(days=89) < new.expires_at - now <= timedelta(days=90, minutes=1)
    assert [api_token_find(presented=one, now=now) for one in (first, second)] == [old, new]
    assert ada.post(f"/people/tokens/{old.pk}/revoke/").status_code == 302
    assert api_token_find(presented=first, now=now) is None
    for page in ("/people/", "/people/?table=tokens&as=csv"):
        assert second not in ada.get(page).content.decode()
    wide = ada.post("/people/tokens/", {**fields, "team": "nlp"})
    assert (wide.status_code, "reach every team" in wide.content.decode()) == (409, True)
    assert ApiToken.objects.count() == 2


def test_a_token_that_is_revoked_twice_is_revoked_once_in_the_audit_log(ada: Client) -> None:
    token, _ = api_token_create(name="gateway", scopes=["usage:write"], actor="t", source="litellm-hq")
    first, later = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    for now in (first, later):
        api_token_revoke(token=token, actor="ada", now=now)
    assert ApiToken.objects.get().revoked_at == first
    assert AuditEntry.objects.filter(action="api_token_revoke", subject="gateway").count() == 1


FIELDS = {"name": "lists", "scopes": ["usage:read"], "source": "", "days": "30"}


@pytest.mark.parametrize(("owner", "made"), [("ada", ["ada"]), ("", [None]), ("ben", []), ("ADA", [])])
def test_a_token_belongs_to_its_maker_or_to_nobody(ada: Client, owner: str, made: list[str | None]) -> None:
    factories.person("ben", "approver")
    answer = ada.post("/people/tokens/", {**FIELDS, "owner": owner})
    assert list(ApiToken.objects.values_list("owner__username", flat=True)) == made
    assert len(SECRET.findall(answer.content.decode())) == len(made)
    assert answer.status_code == (200 if made else 409)


def test_a_token_that_approves_has_an_owner_who_may(ada: Client) -> None:
    fields = {**FIELDS, "scopes": ["prices:approve"]}
    refused = ada.post("/people/tokens/", {**fields, "owner": ""})
    assert (refused.status_code, ApiToken.objects.count()) == (409, 0)
    refused = ada.post("/people/tokens/", {**fields, "owner": "ada"})
    assert (refused.status_code, "ada has no right approve" in refused.content.decode()) == (409, True)
    Membership.objects.create(user=User.objects.get(username="ada"), role="approver")
    assert ada.post("/people/tokens/", {**fields, "owner": "ada"}).status_code == 200
    with pytest.raises(TokenError, match="scope prices:approve: who approves is somebody, so the token needs an owner"):
        api_token_create(name="lists", scopes=["prices:approve"], actor="ada")
    assert list(ApiToken.objects.values_list("owner__username", flat=True)) == ["ada"]


def test_only_ones_own_tokens_and_those_of_nobody_are_rotated_and_all_are_revoked(ada: Client) -> None:
    """Whoever sees a new secret could act in the name of its owner."""
    own, ben = User.objects.get(username="ada"), factories.person("ben", "approver")
    tokens = {
        name: api_token_create(name=name, scopes=["usage:read"], actor="t", owner=owner)[0]
        for name, owner in (("mine", own), ("hers", ben), ("nobody's", None))
    }
    page = ada.get("/people/").content.decode()
    for name, status in (("mine", 200), ("nobody's", 200), ("hers", 404)):
        path = f"/people/tokens/{tokens[name].pk}/rotate/"
        assert (path in page) is (status == 200)
        answer = ada.post(path)
        assert (answer.status_code, len(SECRET.findall(answer.content.decode()))) == (status, int(status == 200))
    assert sorted(ApiToken.objects.values_list("name", flat=True)) == ["hers", "mine", "mine", "nobody's", "nobody's"]
    assert {ada.post(f"/people/tokens/{token.pk}/revoke/").status_code for token in tokens.values()} == {302}
    assert sorted(ApiToken.objects.exclude(revoked_at=None).values_list("name", flat=True)) == ["hers", "mine", "nobody's"]
