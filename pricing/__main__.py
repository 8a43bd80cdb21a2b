"""Command line `python -m pricing`: prices of GPU-hours, tokens, storage, efficiency bands and training runs.

Exit status 0 on success, 2 on bad usage or bad input (one line per bad field), 3 where a person must decide.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from metering.terminal import OneLineParser, print_anything
from pricing.commands import efficiency, gpu_hour, storage, tokens, training_plan
from pricing.commands.files import CommandError

COMMANDS = {
    "gpu-hour": gpu_hour, "tokens": tokens, "efficiency": efficiency, "training-plan": training_plan, "storage": storage,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of all commands."""
    top = OneLineParser(prog="python -m pricing", description="Prices of AI compute, explained.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    print_anything()
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except CommandError as error:
        sys.stderr.write("".join(f"{line}\n" for line in error.lines))
        return error.status
    except BrokenPipeError:
        # the reader closed the pipe: buffered output must not fail again when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
