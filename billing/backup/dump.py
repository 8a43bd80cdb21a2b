"""Taking of backups: the dump and its manifest use one snapshot, so that writes in the meantime are in neither."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from errno import EEXIST
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import rmtree
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
    """Database without the tables of Suanpan."""


def manifest_path(path: Path) -> Path:
    """Return the path of a dump's manifest, beside the dump."""
    return path.with_name(f"{path.name}.json")


def backup_take(
    *, path: Path, now: datetime, jobs: int = 1, advance: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """Dump the database to `path` and write its manifest beside it; return the manifest.

    jobs: tables that are read concurrently; with more than one, `path` becomes a folder. Only the owner may read the files.
    Raises NoLedgerError, ProgramError, ProgramFailedError, OSError.
    """
    with closing(server_connection(autocommit=False)) as ledger:
        ledger.isolation_level, ledger.read_only = IsolationLevel.REPEATABLE_READ, True
        try:
            facts = ledger_facts(ledger)
        except psycopg.errors.UndefinedTable as error:
            raise NoLedgerError("this database has no ledger: run `manage.py migrate`") from error
        advance(1)
        # pg_dump joins this transaction's snapshot: the facts above and the dump are of the same rows
        (snapshot,) = ledger.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        version = ledger.info.server_version
        form = ("--format=custom",) if jobs == 1 else ("--format=directory", f"--jobs={jobs}")
        with atomic_file(path, mode=PRIVATE) if jobs == 1 else _new_folder(path) as draft:
            run("pg_dump", *form, "--no-privileges", f"--snapshot={snapshot}", f"--file={draft}")
            advance(1)
            manifest = {
                "schema": SCHEMA, "taken_at": now.isoformat(), "postgresql": version // 10_000, "sha256": digest_of(draft),
                "bytes": sum(file.stat().st_size for file in _files(draft)), "facts": facts,
            }  # fmt: skip
    with atomic_file(manifest_path(path), mode=PRIVATE) as draft:
        draft.write_text(json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    advance(1)
    return manifest


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Yield a draft name for a folder, and rename it to `path` if the block succeeds; an existing `path` is not replaced."""
    if path.exists():
        raise FileExistsError(EEXIST, "already exists", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft  # pg_dump creates it with mode 0700, and syncs it before it ends
        draft.rename(path)
    finally:
        rmtree(draft, ignore_errors=True)


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and digests of a folder's files; hexadecimal."""
    if path.is_dir():
        return sha256("".join(f"{file.name} {digest_of(file)}\n" for file in _files(path)).encode()).hexdigest()
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def backups_expire(*, beside: Path, before: datetime) -> list[Path]:
    """Delete backups in the folder of `beside` that were taken before a time; return them. Files without manifest stay."""
    gone = []
    for manifest in sorted(beside.parent.glob("*.json")):
        path = manifest.with_name(manifest.name.removesuffix(".json"))
        if path != beside and (taken := _taken_at(manifest)) is not None and taken < before:
            rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            manifest.unlink()
            gone.append(path)
    return gone


def _taken_at(manifest: Path) -> datetime | None:
    """Return the time of a backup; None for a file that is not such a manifest."""
    try:
        facts = json.loads(manifest.read_bytes())
    except ValueError:
        return None
    return datetime.fromisoformat(facts["taken_at"]) if isinstance(facts, dict) and facts.get("schema") == SCHEMA else None
