"""SQL with which a room has the database refuse changes of what is stored, whoever asks for them.

A table is either appended to only (`appended_only`), or some of its columns may change (`changes_only`), and `refused_where`
says which of those changes are none that the services make. What costs nothing on the way in: triggers of rows ask before
UPDATE and DELETE alone, and only where a guarded column is named and differs.

PostgreSQL alters the type of no column that a trigger names: a migration that does drops the trigger before, and guards the
table anew after it.
"""

from collections.abc import Iterable

from django.db import migrations


def appended_only(table: str, why: str) -> migrations.RunSQL:
    """Refuse every UPDATE and DELETE of a row of `table`, and TRUNCATE."""
    return migrations.RunSQL(
        f"""CREATE TRIGGER rows_stay BEFORE UPDATE OR DELETE ON {table}
                FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('{why}');
            {_never_emptied(table, why)}""",
        f"DROP TRIGGER IF EXISTS rows_stay ON {table}; DROP TRIGGER IF EXISTS never_emptied ON {table};",
    )


def never_emptied(table: str, why: str) -> migrations.RunSQL:
    """Refuse TRUNCATE of a table whose rows are guarded already."""
    return migrations.RunSQL(_never_emptied(table, why), f"DROP TRIGGER IF EXISTS never_emptied ON {table};")


def _never_emptied(table: str, why: str) -> str:
    return f"""CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION suanpan_refuse('{why}');"""


def changes_only(table: str, columns: Iterable[str], why: str) -> migrations.RunSQL:
    """Refuse UPDATE of every column of `table` but `columns`. A migration that adds a column to a guarded table says this
    again after it: the new column stays as well unless it is named.
    """
    named = ", ".join(f"'{column}'" for column in columns)
    return migrations.RunSQL(
        f"SELECT suanpan_columns_stay('{table}', ARRAY[{named}]::text[], '{why}')",
        f"DROP TRIGGER IF EXISTS columns_stay ON {table}",
    )


def kept(table: str, why: str) -> migrations.RunSQL:
    """Refuse DELETE of a row of `table`, and TRUNCATE."""
    return migrations.RunSQL(
        f"""CREATE TRIGGER rows_are_kept BEFORE DELETE ON {table}
                FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('{why}');
            {_never_emptied(table, why)}""",
        f"DROP TRIGGER IF EXISTS rows_are_kept ON {table}; DROP TRIGGER IF EXISTS never_emptied ON {table};",
    )


def refused_where(table: str, name: str, columns: Iterable[str], condition: str, why: str) -> migrations.RunSQL:
    """Refuse an UPDATE of `columns` where `condition`, in terms of OLD and NEW, is not false."""
    return migrations.RunSQL(
        f"""CREATE TRIGGER {name} BEFORE UPDATE OF {', '.join(columns)} ON {table} FOR EACH ROW
            WHEN (({condition}) IS NOT FALSE) EXECUTE FUNCTION suanpan_refuse('{why}');""",
        f"DROP TRIGGER IF EXISTS {name} ON {table};",
    )
