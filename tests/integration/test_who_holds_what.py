"""Auditors see for every person the roles, teams and tokens, and since when."""

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection

from billing.tenancy.models import ApiToken, AuditEntry, Membership, Team
from billing.tenancy.roles import role_grant, roles_from_provider
from billing.tenancy.tokens import api_token_create
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
JOINED = datetime(2026, 1, 5, 1, tzinfo=UTC)


def listed(who: str) -> list[list[str]]:
    """Person, kind, name, team, teams and since of each row of the file."""
    body = factories.signed_in(who).get("/people/holdings/?table=holdings&as=csv").content.decode("utf-8-sig")
    names = ("user_name", "holds", "name", "team", "teams", "since")
    return [[row[name] for name in names] for row in csv.DictReader(io.StringIO(body))]


def granted_at(user: User) -> str:
    """When the database noted the one role of a user."""
    held = Membership.objects.get(user=user)
    return AuditEntry.objects.get(subject=f"tenancy_membership {held.pk}", action="row_insert").at.isoformat()


def test_every_role_and_token_is_listed_with_its_teams_and_its_date(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    Team.objects.create(code="research", name="Research", is_group=True)
    Team.objects.filter(code__in=["nlp", "cv"]).update(parent=Team.objects.get(code="research"))
    aud = factories.person("aud", "auditor")
    ben, cem, root = factories.person("ben"), factories.person("cem"), User.objects.create_superuser("root")
    role_grant(user=ben, role="lead", team=Team.objects.get(code="research"), actor="ada")
    roles_from_provider(user=cem, roles={("viewer", "cv")}, actor="oidc")
    own, _ = api_token_create(name="script", scopes=["usage:read"], actor="t", owner=ben, team=Team.objects.get(code="nlp"))
    gateway, _ = api_token_create(name="gateway", scopes=["usage:write"], actor="t", source="litellm-hq")
    ended, _ = api_token_create(name="old", scopes=["usage:read"], actor="t", owner=ben)
    ApiToken.objects.filter(pk=ended.pk).update(revoked_at=JOINED)
    User.objects.update(date_joined=JOINED)

    joined = JOINED.isoformat()
    superuser = AuditEntry.objects.get(subject=f"auth_user {root.pk}", action="row_insert").at.isoformat()
    assert listed("aud") == [
        ["aud", "account", "", "", "", joined],
        ["aud", "role", "auditor", "", "", granted_at(aud)],
        ["ben", "account", "", "", "", joined],
        ["ben", "role", "lead", "research", "cv, nlp", granted_at(ben)],
        ["ben", "token", "script", "nlp", "nlp", own.created_at.isoformat()],
        ["cem", "account", "", "", "", joined],
        ["cem", "role", "viewer", "cv", "cv", granted_at(cem)],
        ["root", "account", "", "", "", joined],
        ["root", "superuser", "", "", "", superuser],
        ["", "token", "gateway", "", "", gateway.created_at.isoformat()],
    ]


def test_a_role_that_another_one_replaced_is_held_since_then(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    factories.person("aud", "auditor")
    ben = factories.person("ben", "viewer")
    held = Membership.objects.get(user=ben)
    held.role = "finance"
    held.save()
    changed = AuditEntry.objects.get(subject=f"tenancy_membership {held.pk}", action="row_update").at
    assert ["ben", "role", "finance", "", "", changed.isoformat()] in listed("aud")


def test_a_role_that_was_loaded_without_an_audit_entry_has_an_unknown_date(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    factories.person("aud", "auditor")
    ben = factories.person("ben")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        Membership.objects.create(user=ben, role="finance")
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    assert ["ben", "role", "finance", "", "", "unknown"] in listed("aud")
    page = factories.signed_in("aud").get("/people/holdings/").content.decode()
    assert ("unknown" in page, "Who holds what" in page) == (True, True)


def test_the_page_changes_nothing_and_is_for_who_reads_the_audit_log(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    for role, status in (("auditor", 200), ("finance", 200), ("admin", 403), ("viewer", 403)):
        factories.person(f"a-{role}", role)
        client = factories.signed_in(f"a-{role}")
        assert client.get("/people/holdings/").status_code == status
        assert client.post("/people/holdings/").status_code == 405
