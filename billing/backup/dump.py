"""Taking a backup: the dump and its manifest see the same instant, whatever is written meanwhile."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

import psycopg
from psycopg import IsolationLevel

from billing.backup.ledger_facts import ledger_facts
from billing.backup.programs import run, server_connection
from billing.runtime.atomic_file import atomic_file

SCHEMA = "suanpan/backup/1"
PRIVATE = 0o600
STEPS = 3


class NoLedgerError(LookupError):
    """A database that Suanpan's schema was never brought to."""


def manifest_path(path: Path) -> Path:
    """The manifest of a dump is beside it."""
    return path.with_name(f"{path.name}.json")


def backup_take(*, path: Path, now: datetime, advance: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Dump the database to `path` and write its manifest beside it; returns the manifest.

    Both are readable by their owner only. Raises NoLedgerError, ProgramError, ProgramFailedError, OSError.
    """
    with closing(server_connection(autocommit=False)) as ledger:
        ledger.isolation_level, ledger.read_only = IsolationLevel.REPEATABLE_READ, True
        try:
            facts = ledger_facts(ledger)
        except psycopg.errors.UndefinedTable as error:
            raise NoLedgerError("this database has no ledger: run `manage.py migrate`") from error
        advance(1)
        (snapshot,) = ledger.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        version = ledger.info.server_version
        with atomic_file(path, mode=PRIVATE) as draft:
            run("pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={draft}")
            advance(1)
            manifest = {
                "schema": SCHEMA, "taken_at": now.isoformat(), "postgresql": version // 10_000, "sha256": digest_of(draft),
                "bytes": draft.stat().st_size, "facts": facts,
            }  # fmt: skip
    with atomic_file(manifest_path(path), mode=PRIVATE) as draft:
        draft.write_text(json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    advance(1)
    return manifest


def digest_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
