"""SQL files of a package: its functions, triggers, views and plain tables as of today, in its `sql` folder.

A file can be applied again at any time (`CREATE OR REPLACE`, `IF NOT EXISTS`). The newest migration that changed a file
applies it whole, and no other does; tests compare new and upgraded databases with the files.
"""

from importlib.resources import files

from django.db.migrations import RunSQL


def sql_file(package: str, name: str) -> str:
    """Return the text of `sql/NAME.sql` of a package of billing, such as ("billing.usage", "guards")."""
    return (files(package) / "sql" / f"{name}.sql").read_text()


def sql_applied(package: str, *names: str) -> list[RunSQL]:
    """Return the operations of a migration that apply files of a package, in this order."""
    return [RunSQL(sql_file(package, name), RunSQL.noop) for name in names]
