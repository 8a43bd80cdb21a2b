"""`python -m metering outbox`: send what the LiteLLM callback wrote, where the proxy itself is not to send."""

import argparse
import logging
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Final

from metering.gateways.outbox import Sender, sole_sender

BAD_INPUT: Final = 2
SOMEBODY_DECIDES: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the folder of SUANPAN_OUTBOX")
    parser.add_argument("--endpoint", required=True, help="address of the platform")
    parser.add_argument("--token-file", type=Path, required=True, metavar="FILE", help="bearer token with usage:write")
    parser.add_argument("--source", default="", help="that of SUANPAN_SOURCE: tell each minute that it is watched")
    parser.add_argument("--once", action="store_true", help="send what is there and end; else go on until SIGTERM")
    parser.add_argument("--deliver-seconds", type=float, default=600, metavar="S", help="with --once: how long to try")


def run(options: argparse.Namespace) -> int:
    """Send; 2 where something is wrong from the start, 3 where not everything could be delivered."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    token_file: Path = options.token_file
    sender = Sender(
        options.state, endpoint=options.endpoint, source=options.source,
        token=lambda: token_file.read_text(encoding="utf-8").strip(),
    )  # fmt: skip
    try:
        token_file.read_text(encoding="utf-8")
        return _once(options, sender) if options.once else _on_and_on(sender)
    except (OSError, sqlite3.Error) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        sys.stderr.write(f"{told}\n")
        return BAD_INPUT


def _once(options: argparse.Namespace, sender: Sender) -> int:
    with sole_sender(options.state) as alone:
        if not alone:
            sys.stderr.write(f"{options.state}: another process sends from this outbox\n")
            return BAD_INPUT
        if sender.run_once(seconds=options.deliver_seconds):
            return 0
    sys.stderr.write(f"not everything is delivered: {sender.last_error or 'no answer'}; run again to go on\n")
    return SOMEBODY_DECIDES


def _on_and_on(sender: Sender) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    sender.run(stop)
    return 0
