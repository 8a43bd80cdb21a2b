"""The audit log: chained at commit, provable, and complete whoever writes."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from billing.tenancy.audit import audit_record
from billing.tenancy.audit_chain import ChainProof, audit_chain_prove
from billing.tenancy.models import AuditEntry, AuditLink, Membership, Team
from tests import factories
from tests.factories.commands import Manage

pytestmark = pytest.mark.django_db(transaction=True)


def proof(anchor: tuple[int, str] | None = None) -> ChainProof:
    connection.ensure_connection()
    return audit_chain_prove(connection.connection, [anchor] if anchor else [])


def note(number: int) -> None:
    audit_record(actor="tests", action="note", subject=f"entry {number}", detail={"number": number, "text": "算盘 \"'\\"})


def behind_the_triggers(statement: str, *values: Any) -> None:
    """What somebody with the rights of the database's owner can do."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, values)


@pytest.fixture
def chain() -> list[AuditLink]:
    for number in range(1, 6):
        note(number)
    links = list(AuditLink.objects.all())
    assert [link.ordinal for link in links] == [1, 2, 3, 4, 5]
    return links


def test_every_entry_is_linked_when_its_transaction_commits(chain: list[AuditLink]) -> None:
    assert proof() == ChainProof(5, chain[-1].digest, [])
    with transaction.atomic():
        note(6)
        transaction.set_rollback(True)
    assert AuditLink.objects.count() == 5
    with transaction.atomic():
        note(7)
        note(8)
    assert [json.loads(link.payload)["subject"] for link in AuditLink.objects.filter(ordinal__gt=5)] == [
        "entry 7",
        "entry 8",
    ]
    assert proof().faults == []


@pytest.mark.parametrize("table", ["tenancy_auditentry", "tenancy_auditlink"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"])
def test_the_log_only_grows(chain: list[AuditLink], table: str, statement: str) -> None:
    change = "actor = 'x'" if table == "tenancy_auditentry" else "digest = 'x'"
    with pytest.raises(DatabaseError, match="the audit log only grows"), connection.cursor() as cursor:
        cursor.execute(statement.format(table, change))
    assert proof().ordinal == 5


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE tenancy_auditentry SET actor = 'mallory' WHERE subject = 'entry 3'", r"entry \d+ is not what it was"),
        ("UPDATE tenancy_auditentry SET detail = '{}' WHERE subject = 'entry 3'", r"entry \d+ is not what it was"),
        ("UPDATE tenancy_auditentry SET at = at - interval '1 day' WHERE subject = 'entry 3'", r"entry \d+ is not what"),
        ("DELETE FROM tenancy_auditentry WHERE subject = 'entry 3'", r"entry \d+ was removed"),
        ("UPDATE tenancy_auditlink SET digest = repeat('0', 64) WHERE ordinal = 3", "link 3 has a hash that is not its own"),
        ("DELETE FROM tenancy_auditlink WHERE ordinal = 3", "link 3 is missing"),
        ("DELETE FROM tenancy_auditlink WHERE ordinal = 5", r"entry \d+ is not in the chain"),
        (
            "INSERT INTO tenancy_auditentry (at, actor, action, subject, detail) VALUES (now(), 'x', 'x', 'x', '{}')",
            r"entry \d+ is not in the chain",
        ),
    ],
)
def test_whatever_is_changed_behind_its_back_is_found(chain: list[AuditLink], statement: str, fault: str) -> None:
    behind_the_triggers(statement)
    assert any(re.match(fault, found) for found in proof().faults), proof().faults


def test_a_forged_entry_with_a_new_hash_breaks_the_next_link(chain: list[AuditLink]) -> None:
    behind_the_triggers("UPDATE tenancy_auditentry SET actor = 'mallory' WHERE subject = 'entry 3'")
    behind_the_triggers(
        "UPDATE tenancy_auditlink SET payload = replace(payload, '\"tests\"', '\"mallory\"'), digest = encode(sha256("
        "convert_to(previous || replace(payload, '\"tests\"', '\"mallory\"'), 'UTF8')), 'hex') WHERE ordinal = 3"
    )
    assert proof().faults == ["link 4 does not follow from the one before it"]


def test_an_end_that_was_cut_off_is_found_with_an_anchor(chain: list[AuditLink]) -> None:
    head = (5, chain[-1].digest)
    assert proof(head).faults == []
    behind_the_triggers("DELETE FROM tenancy_auditlink WHERE ordinal = 5")
    behind_the_triggers("DELETE FROM tenancy_auditentry WHERE subject = 'entry 5'")
    assert proof().faults == []
    assert proof(head).faults == [f"link 5 is missing, the anchor says {head[1]}"]


def test_writers_at_the_same_time_make_one_chain() -> None:
    def write(writer: int) -> None:
        try:
            for number in range(25):
                with transaction.atomic():
                    note(writer * 1000 + number)
                    note(writer * 1000 + number + 500)
        finally:
            connection.close()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert AuditEntry.objects.count() == 200
    assert (proof().ordinal, proof().faults) == (200, [])


def test_a_change_of_ownership_or_role_is_noted_whoever_makes_it(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    before = AuditEntry.objects.count()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tenancy_team SET cost_center = 'CC-999' WHERE code = 'cv'")
    entry = AuditEntry.objects.get(pk__gt=AuditEntry.objects.order_by("pk")[before - 1].pk)
    assert (entry.action, entry.subject) == ("row_update", "tenancy_team cv")
    assert entry.detail == {"before": {"cost_center": "CC-220"}, "after": {"cost_center": "CC-999"}}
    person = User.objects.create_user("ann", password="a-long-secret-of-ann")
    membership = Membership.objects.create(user=person, team=Team.objects.get(code="cv"), role="lead")
    Membership.objects.filter(pk=membership.pk).update(role="viewer")
    person.is_staff = True
    person.set_password("another-long-secret")
    person.save()
    User.objects.filter(pk=person.pk).update(last_login=factories.now())
    noted = [(e.action, e.subject.split()[0], e.detail) for e in AuditEntry.objects.filter(pk__gt=entry.pk)]
    assert [(action, table) for action, table, _ in noted] == [
        ("row_insert", "auth_user"),
        ("row_insert", "tenancy_membership"),
        ("row_update", "tenancy_membership"),
        ("row_update", "auth_user"),
    ]
    assert noted[2][2] == {"before": {"role": "lead"}, "after": {"role": "viewer"}}
    assert noted[3][2] == {"before": {"is_staff": False}, "after": {"is_staff": True, "password": "(changed)"}}
    assert "secret" not in json.dumps([detail for *_, detail in noted])
    assert "pbkdf2" not in json.dumps([detail for *_, detail in noted])


def test_what_a_service_means_and_what_happened_carry_the_same_transaction(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    meant = AuditEntry.objects.get(action="team_put", subject="cv")
    happened = AuditEntry.objects.get(action="row_insert", subject="tenancy_team cv")
    assert meant.transaction == happened.transaction > 0


def test_the_command_prints_a_head_and_says_what_is_wrong(
    chain: list[AuditLink], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("audit_verify", "--json")
    assert json.loads(capsys.readouterr().out) == {
        "entries": 5, "head": chain[-1].digest, "ok": True, "faults": [], "anchors": 0,
    }  # fmt: skip
    call_command("audit_verify", "--anchor", f"5:{chain[-1].digest}")
    assert capsys.readouterr().out == f"the audit log holds: 5 entries, head 5:{chain[-1].digest}\n"
    behind_the_triggers("UPDATE tenancy_auditentry SET actor = 'mallory' WHERE subject = 'entry 1'")
    with pytest.raises(SystemExit, match="3"):
        call_command("audit_verify")
    assert "FAIL entry" in capsys.readouterr().out
    assert "'five' is not ORDINAL:DIGEST" in Manage(capsys)("audit_verify", "--anchor", "five").error
    assert "syslog cannot be read from here" in Manage(capsys)("audit_verify", "--anchor", "syslog://127.0.0.1").error
