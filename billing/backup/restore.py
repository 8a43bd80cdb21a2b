"""Proof of a backup: restore it into a scratch database of the same server, compare, and drop the scratch database."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import ProgrammingError, connection
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from billing.backup.dump import SCHEMA, digest_of, manifest_path
from billing.backup.ledger_facts import broken_documents, differences, ledger_facts
from billing.backup.programs import ProgramFailedError, run, server_connection
from billing.corrections.close_proof import closes_altered
from billing.tenancy.audit_chain import audit_chain_prove

SCRATCH = "suanpan_restore_check_"
STEPS = 3
SESSIONS_END = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pg_has_role(usesysid, 'MEMBER')
"""


class ManifestError(ValueError):
    """Manifest that is missing, or not of this format."""


@dataclass
class Checked:
    """Result of a check; `problems` is empty where the backup is proven."""

    manifest: dict[str, Any]
    documents: int = 0
    problems: list[str] = field(default_factory=list)


def restore_check(*, path: Path, jobs: int = 1, advance: Callable[[int], None] = lambda _: None) -> Checked:
    """Restore a backup into a scratch database, `jobs` tables at a time, prove it, and drop the database.

    Raises ManifestError, ProgramError, OSError, psycopg.Error where the server refuses a scratch database.
    """
    if not path.exists():
        raise ManifestError(f"{path}: no such file")
    checked = Checked(manifest_read(path))
    # before the restore: a damaged dump may take long to fail, or restore partly
    if digest_of(path) != checked.manifest["sha256"]:
        checked.problems.append(f"{path.name} is not the file that its manifest describes: its SHA-256 differs")
        return checked
    advance(1)
    with scratch_database() as name:
        try:
            form = ("--exit-on-error", "--no-owner", "--no-privileges", f"--jobs={jobs}")
            run("pg_restore", *form, str(path), database=name)
        except ProgramFailedError as error:
            checked.problems.append(str(error))
            return checked
        advance(1)
        with closing(server_connection(name, autocommit=True)) as restored:
            _prove(restored, checked, database=name)
        advance(1)
    return checked


def running_check(*, path: Path | None) -> Checked:
    """Prove the database of this process, restored by other means; with a backup's `path` also that both are the same.

    Raises ManifestError, ProgramError.
    """
    with closing(server_connection(autocommit=True)) as restored:
        checked = Checked(manifest_read(path) if path else {"facts": ledger_facts(restored)})
        _prove(restored, checked)
    return checked


def _prove(restored: Connection[Any], checked: Checked, database: str = "") -> None:
    """Add what differs; `database`: where `restored` leads, if that is not the database of this process."""
    checked.problems += differences(checked.manifest["facts"], ledger_facts(restored))
    checked.documents, broken = broken_documents(restored)
    checked.problems += broken
    checked.problems += [f"audit log: {fault}" for fault in audit_chain_prove(restored).faults]
    # a backup of an older release lacks columns that the models read: its closes are proven once it is migrated
    with _models_read(database), suppress(ProgrammingError):
        checked.problems += map(str, closes_altered())


@contextmanager
def _models_read(database: str) -> Iterator[None]:
    """Switch this thread's connection to another database of the server; "": keep its own."""
    if not database:
        yield
        return
    before = connection.settings_dict
    connection.close()
    connection.settings_dict = {**before, "NAME": database}
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = before


def manifest_read(path: Path) -> dict[str, Any]:
    """Read the manifest beside a dump.  Raises ManifestError."""
    beside = manifest_path(path)
    try:
        manifest = json.loads(beside.read_bytes())
    except FileNotFoundError as error:
        raise ManifestError(f"{beside}: the manifest of the backup is missing") from error
    except ValueError as error:
        raise ManifestError(f"{beside}: is not a manifest: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA or not {"sha256", "facts"} <= manifest.keys():
        raise ManifestError(f"{beside}: is not a manifest of {SCHEMA}")
    return manifest


@contextmanager
def scratch_database() -> Iterator[str]:
    """Create an empty database on the same server for the block, and drop it however the block ends."""
    name = SCRATCH + secrets.token_hex(6)
    with closing(server_connection(autocommit=True)) as server:
        server.execute(SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name)))
        try:
            yield name
        finally:
            # WITH (FORCE) is refused to all but superusers while autovacuum is in the database; without it the server
            # ends autovacuum by itself.
            server.execute(SESSIONS_END, [name])
            server.execute(SQL("DROP DATABASE IF EXISTS {}").format(Identifier(name)))
