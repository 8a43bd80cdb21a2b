"""Every table is evidence, given or working data; of evidence the application's role changes nothing that stays unseen."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction

from billing.closing.services.showback import billing_mode_put
from billing.corrections.services.corrections import LineCredit
from billing.tenancy.database_roles import EVIDENCE, GIVEN, READ_ONLY, WORKING, rights_grant
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.commands import Manage
from tests.factories.corrections import OCTOBER_OVER, bill, credit, people
from tests.stored_rows import query, rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
APPLICATION = "suanpan_tests_app"
TABLES = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            AND NOT relispartition ORDER BY 1"""
COLUMNS = """SELECT a.attname, format_type(a.atttypid, NULL), a.attidentity <> '' FROM pg_attribute a
             WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
ANOTHER = {
    "boolean": "NOT {}", "jsonb": "'{{\"x\": 1}}'", "timestamp with time zone": "coalesce({}, now()) + interval '1 second'",
    "text": "{} || 'x'", "character varying": "left({} || 'x', 10) || 'y'", "text[]": "{} || ARRAY['x']",
    "integer[]": "{} || ARRAY[7]", "date": "coalesce({}, current_date) + 1",
}  # fmt: skip


ROWS = {
    "rating_poolcapacity": "(close_seq, cluster, accelerator, capacity_us) VALUES (1, 'x', 'x', 1)",
    "rating_idleshare": "(close_seq, team, cluster, accelerator, pool_idle_us, idle_us) VALUES (1, 'nlp', 'x', 'x', 1, 1)",
    "rating_tokenlayout": "(close_seq, team, gathered) VALUES (1, 'nlp', true)",
    "rating_efficiencyverdict": """(close_seq, team, cluster, namespace, job, job_key, policy, gpu_seconds, minutes,
        coverage, multiplier, reason, workload_class, shadow, effect)
        VALUES (1, 'nlp', 'x', 'x', 'x', 'x', 'x', 1, 1, 1, 1, '', '', false, 0)""",
    "closing_exceptionwaiver": """(period_id, kind, subject, quantity, reason, waived_by, waived_at)
        SELECT id, 'overlap', 'x', 1, 'x', 'x', now() FROM invoices_billingperiod WHERE month = '2026-10'""",
}
"""Of tables into which this month wrote nothing."""


@pytest.fixture(autouse=True, scope="module")
def house(for_all_tests: Path) -> None:
    """October was closed, issued, and corrected by a note; the application has its rights."""
    people()
    apply(for_all_tests)
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=10, ended_at=end, observed_until=end))
    billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="pilot", actor="fin", now=OCTOBER_OVER)
    bill()
    credit(LineCredit(1, Decimal("50.00")))
    for table, values in ROWS.items():
        rewrite(f"INSERT INTO {table} {values}")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"CREATE ROLE {APPLICATION}")
    rights_grant(connection, APPLICATION)


def test_every_table_is_evidence_reported_or_working_data() -> None:
    tables = [name for (name,) in query(TABLES)]
    kinds = (EVIDENCE, GIVEN, WORKING, READ_ONLY)
    assert " ".join(table for table in tables if sum(table in kind for kind in kinds) != 1) == ""
    assert frozenset().union(*kinds) - set(tables) == set()


def changes(table: str) -> Iterator[str]:
    """A deletion, and for each column the table with another value in it, changed there or in a row that is added."""
    yield f"DELETE FROM {table}"
    columns = query(COLUMNS, table)
    names = [f'"{name}"' for name, _, _ in columns]
    added = [f'"{name}"' for name, _, identity in columns if not identity]
    if table == "tenancy_auditentry":
        added.clear()  # whoever adds an entry is named by it: test_database_roles
    for (_, kind, identity), name in zip(columns, names, strict=True):
        value = ANOTHER.get(kind, "{} + 1").format(name)
        yield f"UPDATE {table} SET {name} = {'DEFAULT' if identity else value}"
        if name in added and (table, name) != ("closing_exceptionwaiver", '"period_id"'):  # an open month is waived
            values = ", ".join(value if other == name else other for other in added)
            yield f"INSERT INTO {table} ({', '.join(added)}) SELECT {values} FROM {table}"


@pytest.mark.parametrize("table", sorted(EVIDENCE))
def test_a_change_of_evidence_by_the_application_is_refused_or_found(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(f"SELECT 1 FROM {table} LIMIT 1"), table
    unseen = []
    for statement in changes(table):
        with transaction.atomic(), connection.cursor() as cursor:
            try:
                with transaction.atomic():
                    cursor.execute(f"SET LOCAL ROLE {APPLICATION}")
                    cursor.execute(statement)
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                    cursor.execute("RESET ROLE")
            except DatabaseError:
                pass
            else:
                manage = Manage(capsys)
                verified, audited = manage("period_verify", "--all"), manage("audit_verify")
                if verified.status == audited.status == 0:
                    unseen.append(statement)
            transaction.set_rollback(True)
    assert "\n".join(unseen) == ""
