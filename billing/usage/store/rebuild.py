"""Rebuild of a single-table ledger into partitions, while usage comes in (`usage_partition`, ADR 0039).

A new ledger is created, and ingest writes to both. Older rows are copied in physical order, so that rows of one time stay
together. Then both are compared, and the new ledger replaces the old one in one short transaction. It may be killed at any
point and run again. No other module uses this one: it can be removed once no single-table ledger is left, with its command.
"""

from collections.abc import Callable
from typing import Any, Final

from django.db import connection, transaction

from billing.tenancy.audit import audit_record
from billing.usage.store.parts import PartsError, ledger_alone, locked, older_wait, rebuild_waits, table_exists

PAGES: Final = 256
"""Pages of 8 kB copied in one transaction: some 20,000 records."""
BEGIN: Final = """SELECT token_ledger_make();
    SELECT token_month_make(month)
        FROM (SELECT DISTINCT date_trunc('month', day, 'UTC')::date AS month FROM token_usage_day) used
        WHERE month >= '2020-01-01' AND month < '2050-01-01';
    CREATE TABLE token_rebuild AS SELECT 0::bigint AS page, 0::bigint AS pages;
    SELECT token_part_read('token_rebuild');
    CREATE TRIGGER rows_follow AFTER INSERT ON token_entry REFERENCING NEW TABLE AS come
        FOR EACH STATEMENT EXECUTE FUNCTION token_rows_follow('token_entry_new');
    UPDATE token_rebuild SET pages = pg_relation_size('token_entry') / current_setting('block_size')::int"""
COPY: Final = """INSERT INTO token_entry_new SELECT * FROM token_entry
    WHERE ctid >= format('(%%s,0)', %(page)s::bigint)::tid AND ctid < format('(%%s,0)', %(end)s::bigint)::tid
    ON CONFLICT DO NOTHING"""
SUMS: Final = "SELECT epoch, count(*), sum(hash_record_extended(e, 0)) FROM {} e GROUP BY epoch"
DIFFERING: Final = f"""WITH one AS MATERIALIZED ({SUMS.format('token_entry')}),
    parts AS MATERIALIZED ({SUMS.format('token_entry_new')})
    SELECT (SELECT count(*) FROM (TABLE one EXCEPT TABLE parts) a), (SELECT count(*) FROM (TABLE parts EXCEPT TABLE one) b),
           (SELECT coalesce(sum(count), 0) FROM parts)"""


def ledger_rebuild(*, actor: str, advance: Callable[[int, int], None] = lambda *_: None) -> int | None:
    """Partition the ledger; return its number of records, None if it is partitioned already.  Raises PartsError.

    advance: called with pages copied and total pages. Must run as the owner of the database.
    """
    with ledger_alone():
        if table_exists("token_entry_before"):
            return _end()
        if not rebuild_waits():
            if table_exists("token_entry_timed"):
                return None
            locked(lambda cursor: cursor.execute(BEGIN))
        while _copy(advance):
            pass
        _run("VACUUM (FREEZE, ANALYZE) token_entry_new")  # readers by time use its BRIN summary
        records = _require_same()
        older_wait()
        locked(lambda cursor: _exchange(cursor, actor, records))
        return _end()


def _copy(advance: Callable[[int, int], None]) -> bool:
    """Copy some pages, and store the progress in the same transaction; return True if there are more."""
    with transaction.atomic():
        page, pages = _run("SELECT page, pages FROM token_rebuild FOR UPDATE")
        if page < pages:
            _run("SELECT set_config('suanpan.records_return', 'on', true)")  # needed if ClickHouse takes new records
            # by physical page: rows keep their order, and a killed run continues at the stored page
            _run(COPY, {"page": page, "end": page + PAGES})
            _run("UPDATE token_rebuild SET page = page + %(more)s", {"more": PAGES})
    advance(min(page + PAGES, pages), pages)
    return bool(page + PAGES < pages)


def _require_same() -> int:
    """Return the number of records; raise PartsError unless counts and hash sums of each epoch agree, in one snapshot."""
    missing, more, records = _run(DIFFERING)
    if missing or more:
        raise PartsError("the copy is not what the ledger is; both are kept, and the ledger is used as before")
    return int(records)


def _exchange(cursor: Any, actor: str, records: int) -> None:
    cursor.execute("LOCK TABLE token_entry IN ACCESS EXCLUSIVE MODE")
    cursor.execute("DROP TRIGGER rows_follow ON token_entry; DROP TABLE token_rebuild; SELECT token_ledger_exchange()")
    audit_record(actor=actor, action="usage_partition", subject="", detail={"rows": records})


def _end() -> int:
    """Drop the old table; return the number of records of the ledger."""
    locked(lambda cursor: cursor.execute("DROP TABLE token_entry_before"))
    _run("SELECT token_months_make()")
    (records,) = _run("SELECT count(*) FROM token_entry")
    return int(records)


def _run(statement: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return tuple(cursor.fetchone() or ()) if cursor.description else ()
