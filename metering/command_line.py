"""Parts that all commands share: types of options, exit statuses, error output, the log, and stopping on a signal."""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from metering.accelerators import is_extended

BAD_INPUT: Final = 2
SOMEBODY_DECIDES: Final = 3
"""Exit statuses: usage or input is wrong; the command ran, and a person must look at what it reports."""


def add_platform_options(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the options for the platform's address and token."""
    parser.add_argument("--endpoint", required=required, metavar="URL", help="address of the platform")
    parser.add_argument(
        "--token-file", type=Path, required=required, metavar="FILE", help="its bearer token, with the scope usage:write"
    )


def add_resource_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for extended resources that the table of accelerators does not know."""
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME[=PRODUCT]", type=_resource,
        help="count an extended resource that the table does not know, one unit as one device",
    )  # fmt: skip
    parser.add_argument(
        "--no-accelerator", action="append", default=[], metavar="NAME", type=_extended,
        help="an extended resource that is no accelerator, such as a network card: nothing is metered of it",
    )  # fmt: skip


def _extended(text: str) -> str:
    if not is_extended(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be written DOMAIN/NAME")
    return text


def _resource(text: str) -> tuple[str, str]:
    name, _, product = text.partition("=")
    if "/" not in name:
        raise argparse.ArgumentTypeError(f"{text!r} must be written DOMAIN/NAME or DOMAIN/NAME=PRODUCT")
    return name, product


def token_of(path: Path) -> Callable[[], str]:
    """Return a function that reads a token file anew each time, so that a renewed token needs no restart."""
    return lambda: path.read_text(encoding="utf-8").strip()


def instant(text: str) -> datetime:
    """Parse an RFC 3339 instant with an offset; return it in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an RFC 3339 instant") from error
    if at.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no offset")
    return at.astimezone(UTC)


def port(text: str) -> int:
    """Parse a TCP port."""
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def names_by(kind: str) -> Callable[[str], dict[str, str]]:
    """Return a parser of texts that assign names to keys of a `kind`.

    >>> names_by("TYPE")("h800=NVIDIA-H800, gpu=NVIDIA-A100")
    {'h800': 'NVIDIA-H800', 'gpu': 'NVIDIA-A100'}
    """

    def read(text: str) -> dict[str, str]:
        pairs = [item.partition("=") for item in text.split(",") if item.strip()]
        if any(not key.strip() or not name.strip() for key, _, name in pairs):
            raise argparse.ArgumentTypeError(f"{text!r} must be written {kind}=NAME,{kind}=NAME")
        return {key.strip(): name.strip() for key, _, name in pairs}

    return read


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Write the log to stderr, each line with its time."""
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s")


def stop_on_signal() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def bad_input(error: Exception | str) -> int:
    """Write the error on one line of stderr; return the exit status BAD_INPUT."""
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    sys.stderr.write(f"{' '.join(text.split())}\n")
    return BAD_INPUT


def json_lines(records: Iterable[object]) -> str:
    """Encode records as JSON Lines, one record per line, as the endpoints accept."""
    return "".join(f"{msgspec.json.encode(record).decode()}\n" for record in records)


def write_text(text: str, path: Path | None) -> None:
    """Write to a file, or to standard output if `path` is None.  Raises OSError."""
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
