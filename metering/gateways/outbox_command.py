"""Command `python -m metering outbox`: sends what the LiteLLM callback wrote, if the proxy itself is not to send."""

import argparse
import sqlite3
import sys
from pathlib import Path

from metering.command_line import (
    BAD_INPUT,
    SOMEBODY_DECIDES,
    add_platform_options,
    bad_input,
    log_to_stderr,
    stop_on_signal,
    token_of,
)
from metering.gateways.outbox import Sender, sole_sender


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the folder of SUANPAN_OUTBOX")
    add_platform_options(parser, required=True)
    parser.add_argument("--source", default="", help="that of SUANPAN_SOURCE: report each minute that it is watched")
    parser.add_argument("--once", action="store_true", help="send what is there and end; else go on until SIGTERM")
    parser.add_argument("--deliver-seconds", type=float, default=600, metavar="S", help="with --once: how long to try")


def run(options: argparse.Namespace) -> int:
    """Send; return 2 if the options are wrong, 3 if not everything could be delivered."""
    log_to_stderr()
    token = token_of(options.token_file)
    sender = Sender(options.state, endpoint=options.endpoint, source=options.source, token=token)
    try:
        token()
        if options.once:
            return _once(options, sender)
        sender.run(stop_on_signal())
        return 0
    except (OSError, sqlite3.Error) as error:
        return bad_input(error)


def _once(options: argparse.Namespace, sender: Sender) -> int:
    with sole_sender(options.state) as alone:
        if not alone:
            sys.stderr.write(f"{options.state}: another process sends from this outbox\n")
            return BAD_INPUT
        if sender.run_once(seconds=options.deliver_seconds):
            return 0
    sys.stderr.write(f"not everything is delivered: {sender.last_error or 'no answer'}; run again to go on\n")
    return SOMEBODY_DECIDES
