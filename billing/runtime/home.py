"""Home of an installation: the directory of embedded services and generated secrets."""

import errno
import os
import re
import secrets
from pathlib import Path
from typing import Final

PROJECT = Path(__file__).resolve().parents[2]
LEAST_SECRET: Final = 16
"""Shortest secret in characters; `secret` generates 64, secrets from elsewhere may have another length."""
LOST_ANY: Final = "put back its copy from a backup of the home"
LOST: Final = {
    "django-secret-key": f"{LOST_ANY}, or delete it: with a new one all sign in again and set up second factors anew",
    "broker-password": "delete it: a new one is made",
}
"""Advice for a secret that is empty or not text."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class HomeError(Exception):
    """Unusable home; the text names the path and the repair."""


def home_dir() -> Path:
    """Return `SUANPAN_HOME`, by default `.suanpan/` in the project."""
    return Path(os.environ.get("SUANPAN_HOME") or PROJECT / ".suanpan").expanduser().absolute()


def secret(name: str, home: Path | None = None) -> str:
    """Return a secret, generated once per home by the first process; all others read the same.

    name: lower-case letters, digits and hyphens; the name of a file that only its owner may read.
    Returns 64 characters of the URL-safe alphabet, so it fits into a database URL without quoting.
    Raises HomeError if the home cannot be read or written.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a secret")
    path = (home or home_dir()) / "secrets" / name
    try:
        if not path.exists():
            _generate(path)
        text = path.read_text()
    except OSError as error:
        raise HomeError(explain(error, path)) from error
    except UnicodeDecodeError:
        text = ""
    if len(text) < LEAST_SECRET:
        raise HomeError(f"{path} is damaged: {LOST.get(name, LOST_ANY)}")
    return text


def make_home(home: Path) -> Path:
    """Create the directory of an installation if missing; others may pass through it but not list it.

    A server that runs under another account than its starter (root starts it) has to reach its data in subdirectories.
    """
    try:
        if not home.is_dir():
            home.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(explain(error, home)) from error
    return home


def explain(error: OSError, path: Path) -> str:
    """Return one sentence for a person: the refusal of the system, the path, and the repair."""
    where = error.filename or path
    advice = {
        errno.ENOSPC: "free some space or set SUANPAN_HOME to a directory on another disk",
        errno.EDQUOT: "free some space or set SUANPAN_HOME to a directory on another disk",
        errno.EROFS: "set SUANPAN_HOME to a directory that can be written",
        errno.EACCES: "run as the owner of that directory or set SUANPAN_HOME to one of your own",
        errno.EPERM: "run as the owner of that directory or set SUANPAN_HOME to one of your own",
    }.get(error.errno or 0, "set SUANPAN_HOME to a directory that can be used")
    return f"{error.strerror or error}: {where}; {advice}"


def _generate(path: Path) -> None:
    """Write a draft and link it to its name, so that a name appears with its whole content, and only the first link wins."""
    make_home(path.parents[1])
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())
        # link and not rename: it fails if another process was first, whose secret is already in use
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
