"""Errors of embedded services that do not start, with the last log lines and the remedy."""

from pathlib import Path

from billing.runtime.home import HomeError

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
)


class EmbeddedError(HomeError):
    """Failure of an embedded service; the text names the cause, the last lines of its log and the remedy."""


class PortTaken(EmbeddedError):
    """Port that another program took between our choice and the server's bind; another port will do."""


def log_size(log: Path) -> int:
    """Return the current size of the log, to tell the output of a new start from earlier output."""
    return log.stat().st_size if log.exists() else 0


def log_since(log: Path, offset: int) -> str:
    """Return the last 12 lines written to a log after `offset` bytes."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(offset, log_size(log) - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-12:])


def start_failed(what: str, log: Path, offset: int) -> EmbeddedError:
    """Build the error for a program that ended before it was ready, with its output since `offset`."""
    tail = log_since(log, offset)
    if "Address already in use" in tail:
        return PortTaken(f"{what}: the port is taken")
    quoted = "\n".join(f"    {line}" for line in tail.splitlines()) or "    (it wrote nothing)"
    return EmbeddedError(f"{what} did not start. Last lines of {log}:\n{quoted}\n  What to do: {_advice_for(tail)}")


def _advice_for(text: str) -> str:
    for complaint, advice in _ADVICE:
        if complaint in text:
            return advice
    return "read the log above, or set DATABASE_URL and BROKER_URL to services of your own"
