"""Values of command lines that several agents share."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path


def instant(text: str) -> datetime:
    """An RFC 3339 instant with an offset, in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an RFC 3339 instant") from error
    if at.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no offset")
    return at.astimezone(UTC)


def token_of(path: Path) -> Callable[[], str]:
    """A function that reads a token file anew each time, so that a renewed token needs no restart."""
    return lambda: path.read_text(encoding="utf-8").strip()


def port(text: str) -> int:
    """A TCP port."""
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
