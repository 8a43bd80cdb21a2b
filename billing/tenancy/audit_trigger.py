"""SQL with which a room puts a table under watch: every change of a row becomes an audit entry, whoever made it.

Services say what they mean (`audit_record`); the watch says what happened, also where somebody wrote through the admin,
a shell or plain SQL. Both stand in one transaction and carry its number.
"""

from collections.abc import Iterable

from django.db import migrations


def watched(table: str, *, key: str = "id", silent: Iterable[str] = (), secret: Iterable[str] = ()) -> migrations.RunSQL:
    """Watch `table`.  `silent`: columns whose change alone is not an entry; `secret`: columns named but never shown."""
    arguments = ", ".join(f"'{value}'" for value in (key, ",".join(silent), ",".join(secret)))
    return migrations.RunSQL(
        f"CREATE TRIGGER row_is_audited AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION tenancy_audit_row({arguments})",
        f"DROP TRIGGER row_is_audited ON {table}",
    )
