"""What can go wrong with embedded services, told with what to do."""

from pathlib import Path


class EmbeddedError(RuntimeError):
    """A service that did not start, with its last words."""


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a log, on one line, for an error message."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return " | ".join(lines[-count:])
