"""What the role of the application may not do, tried on every table of a real database."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client, override_settings
from django.utils import timezone

from billing.local.process_list import children
from billing.tenancy import database_roles
from billing.tenancy.apps import role_is_restricted
from billing.tenancy.audit import audit_record, audit_record_each
from billing.tenancy.audit_chain import audit_chain_prove
from billing.tenancy.database_roles import current_excess, rights_grant, role_excess, table_rights
from billing.tenancy.models import AuditEntry
from tests.stored_rows import query

pytestmark = pytest.mark.django_db
APPLICATION = "suanpan_tests_app"
ONLY_ADDED = [
    "approvals_step", "closing_accrual", "closing_meterreading", "corrections_disputestep", "invoices_documentevent",
    "invoices_invoicesums", "rates_gpuprice", "rates_tokenprice", "rating_charge", "rating_efficiencyverdict",
    "rating_idleshare", "rating_poolcapacity", "rating_pooltime", "tenancy_auditentry", "token_detail",
    "token_dimension", "token_entry", "token_tag_set", "token_tag_value", "usage_acceptedrows", "usage_agentdiagnostic",
    "usage_capacitytyperule", "usage_clusterscan", "usage_coveragenote", "usage_efficiencysample", "usage_enginereading",
    "usage_servicetierrule", "usage_sharecorrection", "usage_sharedeclaration",
]  # fmt: skip
"""Audit log, ledger, evidence: rows are added and read, nothing else."""
CHANGING = {
    "corrections_disputeholdback": {"posted_with_id", "posted_at"},
    "invoices_invoice": {
        "status", "approved_by", "void_reason", "number", "fiscal_year", "sequence", "document", "sha256", "previous_sha256",
        "issued_at",
    },
    "invoices_invoiceline": {"id"},  # locked, and its guard refuses the change itself
    "invoices_journalexport": {"reference", "acknowledged_at", "acknowledged_by"},
    "invoices_noteline": {"id"},  # the same
    "invoices_numberseries": {"last_number", "last_sha256"},
    "rates_allocationpolicy": {"valid_until"},
    "rates_carbonfactors": {"valid_until"},
    "rates_commitment": {"valid_until"},
    "rates_efficiencypolicy": {"valid_until"},
    "rates_priceversion": {"sealed", "valid_until"},
    "rating_retroactivechange": {"last_sample", "epoch", "change_seq"},
    "token_shard": {"batch", "incarnation"},
    "usage_agentwatermark": {"watermark", "watched_since", "reported_at"},
    "usage_allocationinterruption": {"ended_at", "end_reason"},
    "usage_allocationrevision": {"until"},
    "usage_close": {"withdrawn_at"},
    "usage_nodecapacity": {"until", "content_sha256"},
    "usage_tokenfile": {"until"},
}
"""Columns that change; no other of these tables does."""
ROWS_ARE_KEPT = [
    *ONLY_ADDED, *sorted(CHANGING.keys() - {"usage_allocationrevision"}), "approvals_proposal", "closing_exceptionwaiver",
    "corrections_dispute", "invoices_billingmode", "invoices_billingperiod", "invoices_correction",
    "invoices_note", "rates_costsheet", "rates_tokencostsheet", "usage_gpuallocation", "usage_quarantinedrecord",
    "usage_unknownshare",
]  # fmt: skip
TABLES = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1"""
PARTS = "SELECT relid::regclass::text FROM pg_partition_tree('token_entry') WHERE level > 0 ORDER BY 1"
GUARDED = "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'never_emptied' ORDER BY 1"
COLUMNS = """SELECT quote_ident(attname) FROM pg_attribute
             WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attidentity <> 'a'"""
"""Without those that the database alone fills in, whoever asks."""
GUARDS = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal"


@pytest.fixture(autouse=True)
def granted() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {APPLICATION}")
    rights_grant(connection, APPLICATION)


@contextmanager
def as_application() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {APPLICATION}")
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


def allowed(*statements: str) -> list[str]:
    """Of these statements those for which the application has the right."""
    found = []
    with as_application():
        for statement in statements:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(statement)
                    transaction.set_rollback(True)
            except DatabaseError as error:
                if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                    continue
            found.append(statement)
    return found


def names(statement: str, *parameters: str) -> list[str]:
    return [name for (name,) in query(statement, *parameters)]


def test_somebody_has_decided_about_every_table_and_about_none_that_is_not_there() -> None:
    rights = table_rights(connection)
    assert list(rights) == [table for table in names(TABLES) if table not in names(PARTS)]
    assert [name for name, decided in rights.items() if decided is None] == []
    named = database_roles.READ_ONLY | database_roles.CHANGING | database_roles.UPDATED.keys() | database_roles.KEPT
    assert named - rights.keys() == set()


def test_a_new_table_without_a_decision_is_found_and_only_read() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE rating_something (id integer)")
        cursor.execute("CREATE TABLE rating_evidence (id integer)")
        cursor.execute("SELECT suanpan_append_only('rating_evidence', 'evidence stays')")
    rights_grant(connection, APPLICATION)
    assert [name for name, decided in table_rights(connection).items() if decided is None] == ["rating_something"]
    something, evidence = ("INSERT INTO rating_something VALUES (1)", "INSERT INTO rating_evidence VALUES (1)")
    assert allowed("TABLE rating_something", something, evidence, "DELETE FROM rating_evidence") == [
        "TABLE rating_something", evidence,
    ]  # fmt: skip


def test_nothing_but_rows_is_added_to_the_audit_log_the_ledger_and_evidence() -> None:
    rights = table_rights(connection)
    assert [name for name in ONLY_ADDED if rights[name] != database_roles.TableRights(True, (), False)] == []
    updates = [f"UPDATE {table} SET {column} = {column}" for table in ONLY_ADDED for column in names(COLUMNS, table)]
    assert len(updates) > 150
    assert allowed(*updates) == []


def test_other_tables_change_in_the_columns_that_change_and_no_other() -> None:
    for table, columns in CHANGING.items():
        every = {column: f"UPDATE {table} SET {column} = {column} WHERE false" for column in names(COLUMNS, table)}
        assert set(allowed(*every.values())) == {every[column] for column in columns}, table


def test_the_application_only_reads_a_part_of_the_ledger_and_may_have_months_made() -> None:
    parts = names(PARTS)
    assert {"token_entry_other", "token_entry_timed", "token_entry_unmade"} < set(parts)
    assert len(parts) >= 8
    query("SELECT token_month_make('2031-01-01')")
    read = [f"TABLE {part}" for part in names(PARTS)]
    assert allowed(*read) == read
    verbs = ("INSERT INTO {} TABLE token_entry", "UPDATE {} SET epoch = 1", "DELETE FROM {}", "TRUNCATE {}",
             "ALTER TABLE token_entry_timed DETACH PARTITION {}", "COMMENT ON TABLE {} IS 'x'", "LOCK TABLE {}")  # fmt: skip
    assert allowed(*(verb.format(part) for verb in verbs for part in parts)) == []
    made, month = "SELECT token_months_make()", "SELECT token_month_make('2030-01-01')"
    assert allowed(made, month, "SELECT token_ledger_make()", "SELECT token_ledger_exchange()") == [made]


def test_no_row_that_is_kept_is_deleted() -> None:
    assert allowed(*(f"DELETE FROM {table} WHERE false" for table in ROWS_ARE_KEPT)) == []


def test_the_chain_and_the_roll_ups_are_written_by_the_functions_of_the_owner_alone() -> None:
    verbs = ("INSERT INTO {} DEFAULT VALUES", "DELETE FROM {} WHERE false", "SELECT 1 FROM {} FOR UPDATE")
    assert allowed(*(verb.format(name) for verb in verbs for name in ("tenancy_auditlink", "token_hour", "token_day"))) == []


def test_no_table_is_emptied_dropped_or_altered_and_no_trigger_put_aside() -> None:
    tables = names(TABLES)
    verbs = (
        "TRUNCATE {} CASCADE", "DROP TABLE {} CASCADE", "ALTER TABLE {} ADD COLUMN another integer",
        "ALTER TABLE {} DISABLE TRIGGER ALL", "ALTER TABLE {} OWNER TO CURRENT_USER", "ALTER TABLE {} RENAME TO another",
        "CREATE INDEX ON {} ((1))", "CREATE RULE quiet AS ON INSERT TO {} DO INSTEAD NOTHING",
        "CREATE TRIGGER quiet BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('x')",
    )  # fmt: skip
    assert allowed(*(verb.format(table) for verb in verbs for table in tables)) == []
    guards = [(table, guard) for table in names(GUARDED) for guard in names(GUARDS, table)]
    assert len(guards) > 100
    assert allowed(*(f"ALTER TABLE {table} DISABLE TRIGGER {guard}" for table, guard in guards)) == []
    assert allowed(*(f"DROP TRIGGER {guard} ON {table}" for table, guard in guards)) == []


@pytest.mark.parametrize("statement", [
    "SET session_replication_role = replica",
    "CREATE TABLE approvals_proposal_2 (id integer)",
    "CREATE TEMPORARY TABLE approvals_proposal (id integer)",
    "CREATE FUNCTION quiet() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION tenancy_audit_chain() RESET search_path",
    "CREATE SCHEMA another",
    "CREATE ROLE another",
    "SELECT setval('tenancy_auditentry_id_seq', 1)",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('rating', 'x', now())",
])  # fmt: skip
def test_no_guard_is_walked_around(statement: str) -> None:
    assert allowed(statement) == []


def test_the_application_writes_the_audit_log_and_its_chain_grows() -> None:
    with as_application():
        audit_record(actor="lin", action="note", subject="first")
        audit_record(actor="lin", action="note", subject="second")
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    proof = audit_chain_prove(connection.connection)
    assert (proof.ordinal, proof.faults) == (2, [])


def test_an_entry_that_the_application_adds_by_itself_names_its_role_and_now() -> None:
    """Neither the actor nor the date that it was given; the next entry of a service has its own actor again."""
    before = timezone.now()
    forged = """INSERT INTO tenancy_auditentry (at, actor, action, subject, detail, transaction)
                VALUES ('2020-01-01Z', 'ada', 'invoice_approve', '2026-10 nlp', '{}', 1)"""
    with as_application():
        query(forged + " RETURNING id")
        audit_record(actor="lin", action="note", subject="first")
        audit_record_each(actor="eve", action="note", entries=[("second", {}), ("third", {})])
    entries = AuditEntry.objects.order_by("id")
    ((role,),) = query("SELECT 'database:' || session_user")
    assert list(entries.values_list("actor", "subject")) == [
        (role, "2026-10 nlp"), ("lin", "first"), ("eve", "second"), ("eve", "third"),
    ]  # fmt: skip
    assert [entry.subject for entry in entries if not before <= entry.at <= timezone.now()] == []
    assert len(set(entries.values_list("transaction", flat=True))) == 1


def test_what_a_role_has_beyond_its_rights_is_named() -> None:
    assert role_excess(connection, APPLICATION) == []
    with as_application():
        assert (current_excess(connection), role_is_restricted()) == ([], [])
    (warning, *_) = role_is_restricted()
    assert (warning.id, warning.msg) == ("suanpan.W001", "the role of DATABASE_URL is a superuser")
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT CREATE ON SCHEMA public TO {APPLICATION}")
        cursor.execute(f"ALTER ROLE {APPLICATION} CREATEROLE")
        cursor.execute(f"ALTER TABLE tenancy_team OWNER TO {APPLICATION}")
    assert role_excess(connection, APPLICATION) == [
        "may make roles", "owns tenancy_team, or is a member of its owner", "may create in the schema public",
    ]  # fmt: skip


def test_the_metrics_say_whether_the_role_is_restricted(client: Client) -> None:
    assert b"\nsuanpan_database_role_restricted 0.0\n" in client.get("/metrics").content
    with as_application():
        assert b"\nsuanpan_database_role_restricted 1.0\n" in client.get("/metrics").content


def test_no_part_of_a_private_installation_gets_the_address_of_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_OWNER_URL", "postgresql://suanpan:secret@127.0.0.1/suanpan")
    monkeypatch.setenv("DATABASE_URL", "postgresql://suanpan_app:secret@127.0.0.1/suanpan")
    given = [child.env or {} for child in children(8000)]
    assert [("DATABASE_URL" in env, "DATABASE_OWNER_URL" in env) for env in given] == [(True, False)] * 4


def test_check_deploy_warns_where_the_application_owns_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(DATABASE_OWNER=None):
        call_command("check", "--deploy")
    assert "(suanpan.W001) the role of DATABASE_URL is a superuser" in capsys.readouterr().err
