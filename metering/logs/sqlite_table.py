"""The table of a gateway that keeps its log in SQLite (one-api and new-api do by default), read by its growing key."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from metering.logs.checkpoints import Checkpoint
from metering.logs.formats import Translate
from metering.logs.harvest import Harvest, RejectedLine
from metering.record_checks import RecordError

MAGIC: Final = b"SQLite format 3\0"
ROWS: Final = 1000


def is_sqlite(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def glean_rows(path: Path, table: str, translate: Translate, at: Checkpoint) -> Harvest:
    """The next rows after `at.read_until`, which is the last key that was read; `used` is how far the key moved.

    Raises RecordError where there is no such table. The database is opened for reading only, and only while rows are read.
    """
    harvest = Harvest(b"")
    try:
        rows = _rows(path, table, at.read_until)
    except sqlite3.Error as error:
        raise RecordError(f"table {table}: {error}") from error
    for row in rows:
        harvest.lines += 1
        try:
            told = translate(row, f"{table}-{row['id']}")
        except RecordError as error:
            harvest.rejected.append(RejectedLine(str(path), int(row["id"]), str(error), repr(row).encode()))
            continue
        harvest.told += told
        harvest.without_usage += not told
    harvest.used = int(rows[-1]["id"]) - at.read_until if rows else 0
    return harvest


def begins_anew(path: Path, table: str, at: Checkpoint) -> bool:
    """Whether the table ends before the last key that was read: it is another one under the same name."""
    try:
        return bool(at.read_until) and not _rows(path, table, at.read_until - 1)
    except sqlite3.Error as error:
        raise RecordError(f"table {table}: {error}") from error


def _rows(path: Path, table: str, after: int) -> list[Mapping[str, Any]]:
    connection = sqlite3.connect(f"file:{path.absolute().as_posix()}?mode=ro", uri=True, timeout=10)
    try:
        connection.row_factory = sqlite3.Row
        query = f'SELECT * FROM "{table}" WHERE id > ? ORDER BY id LIMIT {ROWS}'  # noqa: S608  (the name is our own)
        return [dict(row) for row in connection.execute(query, (after,)).fetchall()]
    finally:
        connection.close()
