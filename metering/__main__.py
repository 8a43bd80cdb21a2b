"""`python -m metering`: meters that run where Django and the database are not.

Exit status 0 on success, 2 on bad usage or bad input (one line that names file, job and field).
"""

import argparse
import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from metering.backfill import command as backfill
from metering.efficiency import command as efficiency
from metering.engines import command as engines
from metering.gateways import outbox_command as outbox
from metering.k8s import command as gpu
from metering.logs import command as tokens
from metering.slurm import command as slurm

COMMANDS = {
    "backfill": backfill,
    "efficiency": efficiency,
    "engines": engines,
    "gpu": gpu,
    "outbox": outbox,
    "slurm": slurm,
    "tokens": tokens,
}


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaint is one line; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line on stderr."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}, see --help\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = OneLineParser(prog="python -m metering", description="Usage of AI compute, measured.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except BrokenPipeError:
        sys.stdout = io.StringIO()
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
