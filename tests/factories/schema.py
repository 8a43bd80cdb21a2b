"""What a database has beside tables: its functions, triggers and views, as PostgreSQL prints them."""

from typing import Any, Protocol

OWN = "NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"
FUNCTIONS = f"""SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
                WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f' AND {OWN}"""
TRIGGERS = """SELECT format('%I ON %s', t.tgname, t.tgrelid::regclass), pg_get_triggerdef(t.oid) FROM pg_trigger t
              WHERE NOT t.tgisinternal AND t.tgparentid = 0"""
VIEWS = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'"
COLUMNS = """SELECT format('%s.%s', table_name, column_name), format('%s %s %s', data_type, is_nullable, column_default)
             FROM information_schema.columns WHERE table_schema = 'public'"""
CONSTRAINTS = """SELECT format('%s: %s', conrelid::regclass, conname), pg_get_constraintdef(oid) FROM pg_constraint
                 WHERE connamespace = 'public'::regnamespace AND conrelid <> 0"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"


class Cursor(Protocol):
    """A cursor of Django or of psycopg."""

    def execute(self, query: Any) -> object:
        """Run a query."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Its rows."""


def programs_of(cursor: Cursor) -> dict[str, str]:
    """Functions, triggers and views by name."""
    return _read(cursor, FUNCTIONS, TRIGGERS, VIEWS)


def schema_of(cursor: Cursor) -> dict[str, str]:
    """All of it: also columns, constraints and indexes."""
    return programs_of(cursor) | _read(cursor, COLUMNS, CONSTRAINTS, INDEXES)


def _read(cursor: Cursor, *queries: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for query in queries:
        cursor.execute(query)
        found |= {str(name): str(text) for name, text in cursor.fetchall()}
    return found
