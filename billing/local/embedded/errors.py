"""Errors of embedded services that do not start: one line with the last lines of the log and the remedy."""

from pathlib import Path

from billing.runtime.home import HomeError

_BYTES = 16_384
_GRAVE = ("FATAL:", "PANIC:", "ERROR:", "syntax error")
_BACKUP = "put back the home from a backup"
_OTHER_DISK = "free some space or set SUANPAN_HOME to a directory on another disk"
_ADVICE = (
    ("No space left on device", _OTHER_DISK),
    ("Disk quota exceeded", _OTHER_DISK),
    ("Read-only file system", "set SUANPAN_HOME to a directory that can be written"),
    ("could not look up effective user ID", "run under an account that has an entry in /etc/passwd"),
    ("invalid binary", "install where the server's account may pass every directory, or run as an ordinary user"),
    ("could not create shared memory", "raise the limits on shared memory of this machine or container"),
    ("Cannot allocate memory", "free some memory"),
    ("Operation not permitted", "run as an ordinary user, or give this container its usual capabilities"),
    ("Permission denied", "run as the owner of the home or set SUANPAN_HOME to a directory of your own"),
    ("error while loading shared libraries", "install the requirements again; the wheel does not fit this system"),
    ("No such file or directory", f"a file of the home is gone: {_BACKUP}"),
    ("does not exist", f"a file of the home is gone: {_BACKUP}"),
    ("incompatible with server", f"the home is damaged: {_BACKUP}"),
    ("could not locate", f"the home is damaged: {_BACKUP}"),
    ("contains errors", "mend the file that is named"),
)


class EmbeddedError(HomeError):
    """Failure of an embedded service; the text names the cause, the last lines of its log and the remedy."""


class PortTaken(EmbeddedError):
    """Port that another program took between our choice and the server's bind; another port will do."""


def log_size(log: Path) -> int:
    """Return the current size of the log, to tell the output of a new start from earlier output."""
    return log.stat().st_size if log.exists() else 0


def log_since(log: Path, offset: int, *, lines: int = 4) -> list[str]:
    """Return the last lines written to a log after `offset` bytes."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(offset, log_size(log) - _BYTES))
        written = file.read().decode(errors="replace").splitlines()
    return [line.strip() for line in written if line.strip()][-lines:]


def start_failed(what: str, log: Path, offset: int) -> EmbeddedError:
    """Build the error for a program that ended before it was ready, with its output since `offset`."""
    lines = log_since(log, offset, lines=100)
    grave = [line for line in lines if any(word in line for word in _GRAVE)]
    said = "; ".join((grave or lines)[-4:]) or "it wrote nothing"
    if "Address already in use" in said:
        return PortTaken(f"{what}: the port is taken")
    advice = next((remedy for complaint, remedy in _ADVICE if complaint in said), "read the log")
    return EmbeddedError(f"{what} did not start: {said} ({log}). What to do: {advice}")
