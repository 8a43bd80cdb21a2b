"""Who acts is one object, however they come: what they may, what four eyes compare, and what the audit log keeps."""

import getpass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, RequestFactory

from billing.closing.services.operations import operation_run
from billing.invoices.models import Operation
from billing.tenancy.access import Right, same_person
from billing.tenancy.actors import actor_at_command, actor_of, actor_of_token
from billing.tenancy.models import ApiToken, AuditEntry, Membership, Team
from billing.tenancy.tokens import TokenError, api_token_create, api_token_rotate
from tests import factories
from tests.factories.api import bearer
from tests.factories.commands import Manage
from tests.factories.price_api import BODY, Caller

pytestmark = pytest.mark.django_db


def token(name: str, *scopes: str, owner: User | None = None, actor: str = "tests", **facts: Any) -> tuple[ApiToken, Caller]:
    if owner is not None:
        made, presented = factories.own_token(owner, name, *scopes, **facts)
    else:
        made, presented = api_token_create(name=name, scopes=list(scopes), actor=actor, **facts)
    return made, Caller(Client(), bearer(presented))


def last(action: str) -> AuditEntry:
    return AuditEntry.objects.filter(action=action).latest("id")


def test_pages_the_api_tokens_and_commands_say_in_the_audit_log_who_is_behind_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.apply(tmp_path)
    ann = factories.person("ann", "finance", "admin")
    made, robot = token("robot", "prices:write", owner=ann)
    by_session, (page, api) = {"account": ann.pk, "session": "password"}, [factories.signed_in(ann) for _ in "12"]
    assert Caller(api)("POST", "price-versions", BODY).status_code == 201
    assert (last("price_draft_created").actor, last("price_draft_created").detail["acting"]) == (
        "ann", {"channel": "api", **by_session},
    )  # fmt: skip
    assert robot("PATCH", "price-versions/2099-01", {"reason": "newer"}).status_code == 200
    assert (last("price_draft_edited").actor, last("price_draft_edited").detail["acting"]) == (
        "token:robot", {"channel": "token", "account": ann.pk, "token": made.pk},
    )  # fmt: skip
    assert page.post("/people/new/", {"username": "ben"}).status_code == 200
    assert last("account_create").detail["acting"] == {"channel": "portal", **by_session}
    call_command("role", "grant", "ben", "lead", "--team", "nlp", "--by", "ann")
    told = last("role_grant")
    assert (told.actor, told.detail["acting"]) == (
        "ann", {"channel": "command", "account": ann.pk, "system_account": getpass.getuser()}
    )  # fmt: skip
    shown = factories.signed_in(factories.person("otto", "auditor")).get("/audit/?kind=role_grant").content.decode()
    for text in ("system_account", "channel", "command"):
        assert text in shown


def test_what_a_worker_does_is_done_by_whoever_asked_for_it(tmp_path: Path) -> None:
    """The worker has no session: the operation keeps who asked, and the close and the issue say it."""
    factories.apply(tmp_path)
    factories.ingest_allocations(factories.allocation_record(1))
    ann = factories.person("ann", "finance")
    page = factories.signed_in(ann)
    for kind in ("close", "issue"):
        assert page.post("/close/2026-10/operations/", {"kind": kind}).status_code == 302
        assert operation_run(operation_id=Operation.objects.latest("id").pk).status == "done"
    acting = {"channel": "portal", "account": ann.pk, "session": "password"}
    for action in ("period_close", "invoice_issue"):
        assert (last(action).actor, last(action).detail["acting"]) == ("ann", acting)


@pytest.mark.parametrize(
    ("methods", "strength"),
    [([], "password"), (["password"], "password"), (["password", "mfa"], "second factor"),
     (["socialaccount"], "identity provider"), (["socialaccount", "mfa"], "identity provider")],
)  # fmt: skip
def test_a_session_is_as_strong_as_what_it_was_opened_with(methods: list[str], strength: str) -> None:
    ann, request = factories.person("ann", "finance"), RequestFactory().get("/")
    request.user = ann
    request.session = {
        "account_authentication_methods": [{"method": name} for name in methods],
        "account_authentication_methods_user": str(ann.pk),
    }  # type: ignore[assignment]  # a session is read as a dictionary is
    actor = actor_of(request)
    assert (actor, actor.strength, actor.channel, actor.account) == ("ann", strength, "portal", ann)
    assert actor_of(request) is actor


def test_a_token_has_scopes_and_no_right_of_its_owner(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    ann, nlp = factories.person("ann", "finance", "approver"), Team.objects.get(code="nlp")
    confined = actor_of_token(token("nlp", "invoices:read", owner=ann, team=nlp)[0])
    assert [confined.may(right) for right in Right] == [False] * len(Right)
    assert [confined.has(scope) for scope in ("invoices:read", "prices:write")] == [True, False]
    seen = confined.teams()
    assert seen is not None
    assert list(seen) == [nlp]
    person = actor_at_command(" ANN")
    assert (person, person.account, person.may(Right.CLOSE), person.teams()) == ("ann", ann, True, None)
    assert [person.has(scope) for scope in ("prices:write", "prices:approve", "usage:write")] == [True, True, False]


def test_a_token_approves_as_long_as_its_owner_may(tmp_path: Path) -> None:
    """Neither one of nobody, as older releases made them, nor one whose owner approves no more."""
    factories.apply(tmp_path)
    ann, ben = factories.person("ann", "finance"), factories.person("ben", "approver")
    with pytest.raises(TokenError, match="scope prices:approve: ann has no right approve"):
        token("hers", "prices:approve", owner=ann)
    made, decides = token("his", "prices:approve", owner=ben)
    writes = token("writes", "prices:write", owner=ann)[1]
    writes("POST", "price-versions", BODY)
    writes("POST", "price-versions/2099-01/submit", {"reason": "new year"})
    ApiToken.objects.filter(pk=made.pk).update(owner=None)
    forget_tokens()
    assert decides("POST", "price-versions/2099-01/approve", {}).status_code == 403
    ApiToken.objects.filter(pk=made.pk).update(owner=ben)
    ben.memberships.all().delete()
    forget_tokens()
    assert decides("POST", "price-versions/2099-01/approve", {}).status_code == 403
    ApiToken.objects.filter(pk=made.pk).update(owner=factories.person("cem", "approver"))
    forget_tokens()
    assert decides("POST", "price-versions/2099-01/approve", {}).status_code == 403  # cem did not make it
    ApiToken.objects.filter(pk=made.pk).update(owner=ben)
    Membership.objects.create(user=ben, role="approver")
    forget_tokens()
    assert decides("POST", "price-versions/2099-01/approve", {}).status_code == 200


def forget_tokens() -> None:
    from billing.tenancy import tokens

    tokens._recent.clear()


def test_behind_a_token_is_who_made_it_and_who_made_it_anew(tmp_path: Path) -> None:
    """Whoever saw the secret may be who uses it."""
    factories.apply(tmp_path)
    ann, ben = factories.person("ann", "finance"), factories.person("ben", "finance")
    User.objects.filter(pk=ann.pk).update(email="ann@example.org")
    User.objects.filter(pk=factories.person("ann.local").pk).update(email="Ann@example.org")
    made, _ = token("gateway", "prices:write", actor="ann")
    assert [same_person("token:gateway", name) for name in ("Ann", "ann.local", "ben")] == [True, True, False]
    api_token_rotate(token=made, actor="ben", now=factories.now(), days=30)
    assert [same_person("token:gateway", name) for name in ("ann", "ben", "cem")] == [True, True, False]
    api_token_create(name="of ben", scopes=["prices:write"], owner=ben, actor="ann")  # as older releases made them
    assert [same_person("token:of ben", name) for name in ("ann", "ben", "cem")] == [True, True, False]
    assert not same_person("token:", "ann")


MONEY_OR_ACCESS = [
    ["accrual", "2026-10", "--out", "x.csv"], ["exception_waive", "2026-10", "quarantine", "x", "--reason", "r"],
    ["invoice", "preview", "2026-10"], ["invoice", "void", "2026-10", "--team", "nlp", "--reason", "r"],
    ["invoice", "rebuild", "2026-10", "--team", "nlp"], ["invoice", "settle", "X-1", "--reference", "r"],
    ["invoice", "mode", "nlp", "shadow", "--from", "2099-11", "--reason", "r"],
    ["meter_reading", "2026-10", "--cluster", "hq-1", "--kwh", "1", "--source", "PDU"],
    ["period_reopen", "request", "2026-10", "--reason", "r"], ["period_reopen", "reject", "2026-10", "--reason", "r"],
    ["quarantine", "--dismiss", "1", "--reason", "r"], ["quarantine", "--replay", "1", "--reason", "r"],
    ["credit_note", "draft", "X-1", "--line", "1", "--code", "price", "--reason", "r"], ["credit_note", "issue", "1"],
    ["credit_note", "void", "1", "--reason", "r"], ["retroactive_change", "reject", "1", "--reason", "r"],
    ["retroactive_change", "acknowledge", "1", "--team", "nlp"],
    ["retroactive_change", "efficiency", "--name", "x", "--from", "2026-10-01T00:00:00+08:00", "--reason", "r"],
    ["price_version", "submit", "2099-01"], ["price_version", "withdraw", "2099-01"], ["price_version", "reject", "2099-01"],
    ["role", "grant", "eve", "admin"], ["role", "revoke", "eve", "viewer"], ["token_create", "x", "--scope", "prices:write"],
    ["token_create", "x", "--scope", "usage:read", "--scope", "people:provision"], ["token_revoke", "x"],
    ["gpu_share", "--declare", "hq-1", "nvidia.com/gpu", "--fraction", "1", "--reason", "r"],
]  # fmt: skip


@pytest.mark.parametrize("command", MONEY_OR_ACCESS, ids=lambda command: " ".join(command[:2]))
def test_a_command_that_changes_money_or_access_runs_as_an_account_that_may(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name, as nobody, as somebody who left, and as a viewer it is refused; nothing has changed."""
    factories.apply(tmp_path)
    factories.person("ann", "finance")
    gone = factories.person("gone", "finance", "approver", "admin")
    gone.is_active = False
    gone.save()
    factories.person("eve", "viewer")
    token("x", "usage:read")
    monkeypatch.chdir(tmp_path)
    before = AuditEntry.objects.count()

    def refused(*more: str) -> str:
        error = Manage(capsys)(*command, *more).error
        assert (AuditEntry.objects.count(), list(tmp_path.glob("*.csv"))) == (before, [])
        return error

    assert "--by USER (or SUANPAN_OPERATOR): is missing; this takes an active account" in refused()
    for name in ("nobody", "gone"):
        assert f"--by '{name}': no active account of that name" in refused("--by", name)
    monkeypatch.setenv("SUANPAN_OPERATOR", "nobody")
    assert "--by 'nobody': no active account of that name" in refused()
    if command[1] != "acknowledge":  # a right for the one team, which its service asks for
        assert "--by 'eve': this takes an account with the right" in refused("--by", "eve")
        monkeypatch.setenv("SUANPAN_OPERATOR", "eve")
        assert "--by 'eve': this takes an account with the right" in refused()


CONTRACT = [
    ["apply", "set-up.yaml", "--dry-run"], ["period_close", "2026-10"], ["invoice_issue", "2026-10"],
    ["export_journal", "2026-10", "--out", "journal.csv"],
]  # fmt: skip


def test_the_commands_of_a_month_run_without_an_account_and_check_one_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.apply(tmp_path)
    factories.ingest_allocations(factories.allocation_record(1))
    monkeypatch.chdir(tmp_path)
    (file,) = tmp_path.glob("*.yaml")
    file.rename(tmp_path / "set-up.yaml")
    factories.person("eve", "viewer")
    for command in CONTRACT:
        assert "--by 'eve': this takes an account with the right" in Manage(capsys)(*command, "--by", "eve").error
        call_command(*command)
    assert last("period_close").actor == getpass.getuser()


def test_a_token_that_only_reports_and_reads_may_be_made_without_an_account(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("token_create", "gateway", "--scope", "usage:write", "--scope", "budgets:read")
    assert (ApiToken.objects.get().owner, "acting" in last("api_token_create").detail) == (None, True)


def test_a_token_at_a_command_belongs_to_who_is_named_or_to_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """It lasts 90 days unless something else is said."""
    ben = factories.person("ben", "approver")
    call_command("token_create", "ben at work", "--scope", "usage:read", "--by", "ben")
    assert (ApiToken.objects.get().owner, last("api_token_create").actor) == (ben, "ben")
    factories.person("ada", "admin")
    call_command("token_create", "gateway", "--scope", "usage:write", "--owner", "", "--no-end", "--by", "ada")
    made, endless = ApiToken.objects.order_by("id")
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days in (89, 90)
    assert (endless.owner, endless.expires_at) == (None, None)
    make = partial(Manage(capsys), "token_create")
    refused = make("as ben", "--scope", "usage:read", "--owner", "ben", "--by", "ada").error
    assert "--owner 'ben': who makes a token sees it, so it belongs to ada or to nobody" in refused
    refused = make("more", "--scope", "usage:read", "--scope", "usage:write", "--by", "ben").error
    assert "this takes an account with the right manage_people" in refused


def test_nobody_changes_their_own_roles_at_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    factories.person("ada", "admin")
    for step, role in (("grant", "approver"), ("revoke", "admin")):
        refused = Manage(capsys)("role", step, "ada", role, "--by", "ADA").error
        assert "ada: somebody else changes your own account and roles" in refused
    assert list(User.objects.get(username="ada").memberships.values_list("role", flat=True)) == ["admin"]
