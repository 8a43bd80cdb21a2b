"""Two actors are one person or not, whatever names, accounts and tokens they use; four eyes ask nothing else."""

from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.utils import DatabaseError
from django.test import Client

from billing.tenancy.access import same_person
from billing.tenancy.models import ApiToken, Team
from billing.tenancy.tokens import TokenError, api_token_create
from tests import factories
from tests.factories.api import bearer

pytestmark = pytest.mark.django_db


def token(name: str, owner: User | None = None, *scopes: str, team: Team | None = None) -> str:
    wanted = list(scopes or ["prices:read"])
    if owner is not None:
        return factories.own_token(owner, name, *wanted, team=team)[1]
    return api_token_create(name=name, scopes=wanted, actor="tests", team=team)[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ann", " ann ", True), ("ａｎｎ", "ann", True), ("ann", "anna", False), ("", "", False), (" ", "", False),
        ("ann lee", "ann\t lee", True), ("É", "é", True), ("token:", "", False),
    ],
)  # fmt: skip
def test_a_name_is_one_person_however_it_is_spelt(one: str, other: str, same: bool) -> None:
    assert same_person(one, other) is same


def test_accounts_of_one_mail_address_are_one_person() -> None:
    """A local account and one of the identity provider, say."""
    mails = {"ann": "ann@example.org", "a.lee": " Ann@Example.org ", "ben": "ben@example.org", "cem": "", "dan": ""}
    User.objects.bulk_create([User(username=name, email=mail) for name, mail in mails.items()])
    pairs = [("ann", "a.lee"), ("ann", "ben"), ("cem", "dan")]
    assert [same_person(one, other) for one, other in pairs] == [True, False, False]


def test_behind_a_token_is_its_owner() -> None:
    ann, ben = factories.person("ann", "finance"), factories.person("ben", "finance")
    token("lists", ann)
    token("decisions", ben)
    token("nobody's")
    pairs = [("token:lists", "ann"), ("ann", "token:lists"), ("token:lists", "token:decisions"), ("token:nobody's", "ann")]
    assert [same_person(one, other) for one, other in pairs] == [True, True, False, False]


def test_an_account_keeps_its_name() -> None:
    ann = factories.person("ann", "finance")
    with pytest.raises((IntegrityError, DatabaseError), match="an account keeps its name"), transaction.atomic():
        User.objects.filter(pk=ann.pk).update(username="anne")
    User.objects.filter(pk=ann.pk).update(first_name="Anne")
    root = User.objects.create_superuser("root")
    client = factories.signed_in(root)
    form = client.get(f"/admin/auth/user/{ann.pk}/change/").context["adminform"].form
    assert "username" not in form.fields


@pytest.mark.parametrize("scope", ["usage:write", "prices:write", "prices:approve", "people:provision"])
def test_a_token_of_one_team_has_no_scope_that_reaches_all(tmp_path: Any, scope: str) -> None:
    factories.apply(tmp_path)
    with pytest.raises(TokenError, match=f"scopes {scope}: reach every team, so a token of team nlp cannot have them"):
        token("confined", factories.person("ben", "approver"), scope, team=Team.objects.get(code="nlp"))
    assert not ApiToken.objects.exists()


def test_a_token_of_a_group_sees_the_teams_below_it(tmp_path: Any) -> None:
    factories.apply(tmp_path)
    group = Team.objects.create(code="research", name="Research", is_group=True)
    Team.objects.filter(code="nlp").update(parent=group)
    presented = token("reads", None, "invoices:read", team=group)
    teams = Client().get("/api/v1/teams", headers=bearer(presented)).json()
    assert [team["code"] for team in teams["results"] if not team.get("is_group")] == ["nlp"]


@pytest.mark.parametrize("said", [{"email": "ANN@example.org"}, {"userinfo": {"email": "ann@example.org"}}])
def test_accounts_are_one_person_by_the_mail_address_at_the_provider(said: dict[str, Any]) -> None:
    User.objects.bulk_create([User(username="ann", email="ann@example.org"), User(username="oidc", email="")])
    SocialAccount.objects.create(user=User.objects.get(username="oidc"), provider="oidc", uid="7", extra_data=said)
    assert same_person("ann", "oidc")


def test_accounts_that_had_one_mail_address_stay_one_person() -> None:
    """Whoever changes the address of one of them, here or by SCIM, makes no second person of them."""
    for name in ("ann", "ann.admin", "ben"):
        User.objects.create(username=name, email=f"{name[:3]}@example.org")
    User.objects.filter(username="ann").update(email="ann.married@example.org")
    User.objects.filter(username="ann").update(email="")
    assert [same_person("ann", name) for name in ("ann.admin", "ben")] == [True, False]
    late = User.objects.create(username="late")
    User.objects.filter(pk=late.pk).update(email="ann.married@example.org")
    assert [same_person("late", name) for name in ("ann", "ann.admin", "ben")] == [True, False, False]


def test_nobody_changes_the_mail_address_by_which_they_are_known() -> None:
    """With another one, two accounts of one person would be two people, who approve what each other made."""
    ann, other = factories.person("ann", "finance"), factories.person("ann.admin", "approver")
    User.objects.filter(pk__in=[ann.pk, other.pk]).update(email="ann@example.org")
    client = factories.signed_in(other)
    for form in ({"email": "else@example.org", "action_add": ""}, {"email": "else@example.org", "action_primary": ""}):
        client.post("/account/email/", form)
    other.refresh_from_db()
    assert (other.email, same_person("ann", "ann.admin")) == ("ann@example.org", True)
    assert client.get("/account/email/").status_code == 404
