"""Roles: what each may do, how it reaches the teams below a group, and every address tried as every role."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import get_resolver

from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import AuditEntry, Membership, Team
from billing.tenancy.roles import RoleError, role_grant, role_revoke, roles_from_provider
from tests import factories
from tests.factories.roles import MATRIX, WHO, addresses, reached, scenario

__all__ = ["scenario"]

pytestmark = pytest.mark.django_db

TEAMS = [
    {"code": "research", "name": "Research", "cost_center": "CC-200"},
    {"code": "language", "name": "Language", "cost_center": "CC-201", "parent": "research"},
    {"code": "nlp", "name": "NLP Research", "cost_center": "CC-210", "parent": "language"},
    {"code": "cv", "name": "Vision", "cost_center": "CC-220"},
]


@pytest.fixture
def hierarchy(tmp_path: Path) -> None:
    factories.apply(tmp_path, teams=TEAMS)
    Team.objects.filter(code__in=["research", "language"]).update(is_group=True)


def codes(user: Any) -> set[str]:
    return set(teams_visible_to(user).values_list("code", flat=True))


@pytest.mark.usefixtures("hierarchy")
def test_a_role_for_a_group_reaches_every_team_below_it() -> None:
    assert codes(factories.person("head", "lead", team="research")) == {"nlp"}
    assert codes(factories.person("one", "viewer", team="cv")) == {"cv"}
    assert codes(factories.person("all", "viewer")) == {"nlp", "cv", "platform"}
    assert codes(factories.person("nobody")) == set()
    gone = factories.person("gone", "finance")
    gone.is_active = False
    assert codes(gone) == set()


@pytest.mark.usefixtures("hierarchy")
def test_staff_opens_the_admin_and_nothing_else() -> None:
    person = factories.person("clerk")
    person.is_staff = True
    assert access_of(person).everywhere == frozenset()


RIGHTS = {
    "viewer": "read",
    "lead": "read budget dispute",
    "finance": "read budget dispute read_costs read_audit close edit_prices",
    "approver": "read read_costs read_audit approve",
    "admin": "read budget read_costs edit_prices operate manage_people",
    "auditor": "read read_costs read_audit",
}


@pytest.mark.parametrize("role", Membership.Role.values)
def test_what_each_role_may_do(role: str) -> None:
    assert access_of(factories.person("p", role)).everywhere == {Right(name) for name in RIGHTS[role].split()}


def test_nobody_but_a_superuser_both_makes_and_approves() -> None:
    for role, rights in RIGHTS.items():
        assert not {"approve"} & set(rights.split()) or not {"close", "edit_prices"} & set(rights.split()), role


@pytest.mark.usefixtures("hierarchy")
def test_a_right_for_a_team_is_no_right_for_the_installation() -> None:
    nlp, cv = Team.objects.get(code="nlp"), Team.objects.get(code="cv")
    lead = access_of(factories.person("lead", "lead", team="nlp"))
    assert lead.may(Right.BUDGET, nlp)
    assert not lead.may(Right.BUDGET, cv)
    assert not lead.may(Right.BUDGET)
    assert lead.somewhere(Right.BUDGET)
    assert not lead.somewhere(Right.CLOSE)


@pytest.mark.usefixtures("hierarchy")
def test_roles_are_granted_once_and_taken_away_with_an_entry_each() -> None:
    person, nlp = factories.person("ann"), Team.objects.get(code="nlp")
    assert role_grant(user=person, role="lead", team=nlp, actor="boss")
    assert not role_grant(user=person, role="lead", team=nlp, actor="boss")
    assert role_revoke(user=person, role="lead", team=nlp, actor="boss")
    assert not role_revoke(user=person, role="lead", team=nlp, actor="boss")
    reported = AuditEntry.objects.filter(action__startswith="role_").values_list("action", "actor", "subject", "detail")
    detail = {"role": "lead", "team": "nlp"}
    assert list(reported) == [("role_grant", "boss", "ann", detail), ("role_revoke", "boss", "ann", detail)]
    with pytest.raises(RoleError, match="role 'king': choose from viewer, lead, finance"):
        role_grant(user=person, role="king", team=None, actor="boss")
    with pytest.raises(RoleError, match="role 'finance' is held for all teams"):
        role_grant(user=person, role="finance", team=nlp, actor="boss")
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(user=person, role="finance", team=nlp)


@pytest.mark.usefixtures("hierarchy")
def test_roles_of_the_identity_provider_follow_it_and_leave_local_ones_alone() -> None:
    person, nlp = factories.person("ann"), Team.objects.get(code="nlp")
    role_grant(user=person, role="viewer", team=nlp, actor="boss")
    assert roles_from_provider(user=person, roles={("lead", "nlp"), ("auditor", None)}, actor="oidc")
    assert not roles_from_provider(user=person, roles={("lead", "nlp"), ("auditor", None)}, actor="oidc")
    assert roles_from_provider(user=person, roles={("auditor", None)}, actor="oidc")
    held = Membership.objects.filter(user=person).values_list("role", "team__code", "origin")
    assert sorted(held, key=str) == [("auditor", None, "provider"), ("viewer", "nlp", "local")]
    with pytest.raises(RoleError, match="team 'nope': there is no such team"):
        roles_from_provider(user=person, roles={("lead", "nope")}, actor="oidc")


@pytest.mark.usefixtures("hierarchy")
def test_the_command_grants_lists_and_refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.person("ann")
    factories.operates(monkeypatch, "boss", "admin")
    call_command("role", "grant", "ann", "lead", "--team", "nlp", "--by", "boss")
    call_command("role", "grant", "ann", "auditor")
    call_command("role", "list")
    assert capsys.readouterr().out.splitlines() == [
        "ann: lead for nlp",
        "ann: auditor for all teams",
        f"{'ann':<24} {'auditor':<12} {'all teams':<24} local",
        f"{'ann':<24} {'lead':<12} {'nlp':<24} local",
        f"{'boss':<24} {'admin':<12} {'all teams':<24} local",
    ]
    for arguments, reported in (
        (("grant", "bob", "lead"), "user 'bob'"),
        (("grant", "ann", "lead", "--team", "x"), "team 'x'"),
        (("grant", "ann", "king"), "role 'king'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            call_command("role", *arguments)
        assert reported in capsys.readouterr().err


# --- every address as every role -------------------------------------------------------------------------------------

ROUTES = [route for route in addresses(get_resolver().url_patterns) if not route.startswith(("admin/", "account/"))]


def test_every_address_has_an_entry_in_the_matrix() -> None:
    assert sorted(MATRIX) == sorted(set(ROUTES))


@pytest.mark.parametrize("route", sorted(MATRIX))
def test_an_address_answers_each_role_as_the_matrix_says(scenario: dict[str, Any], route: str) -> None:
    clients = {who: Client() if who == "nobody" else factories.signed_in(who) for who in WHO}
    assert {who: reached(client, route, scenario).status_code for who, client in clients.items()} == MATRIX[route][1]
