"""Processes that die between two statements: a connection that raises at the n-th statement of SQLite."""

import sqlite3
from pathlib import Path
from typing import Any


class Crash(BaseException):
    """The process ends here, with nothing cleaned up."""


class MortalConnection(sqlite3.Connection):
    """Dies before the statement that uses up its `life`; None lives for ever."""

    life: int | None = None

    def _spend(self) -> None:
        if self.life is not None:
            self.life -= 1
            if self.life < 0:
                raise Crash

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._spend()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._spend()
        return super().executemany(*arguments)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None:
            self._spend()  # before the commit
        if kind is Crash:
            return False  # no rollback by the dying: SQLite does it when the file is opened again
        return bool(super().__exit__(kind, error, trace))


def mortal_state(path: Path, life: int | None) -> MortalConnection:
    """The state file without waiting for the disk: these processes die, the machine does not."""
    connection = sqlite3.connect(path, factory=MortalConnection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.life = life
    return connection
