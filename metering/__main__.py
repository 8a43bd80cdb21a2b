"""Command line `python -m metering`: meters that run where Django and the database are not.

Each command imports only what it needs itself: the table in docs/agents.md names the packages of each.

Exit status 0 on success, 2 on bad usage or bad input (one line that names file, job and field).
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from metering import __version__
from metering.terminal import EscapedStream, OneLineParser, print_anything

COMMANDS: Final = {
    "backfill": ("metering.backfill.command",
                 "holds of a gap in metering, from kube-state-metrics in Prometheus, flagged as estimates"),
    "efficiency": ("metering.efficiency.command",
                   "MFU and HFU of training jobs, from their reports, checked against DCGM or NPU exporters in Prometheus"),
    "engines": ("metering.engines.command",
                "token counters of vLLM and SGLang servers, to compare with what gateways report"),
    "gpu": ("metering.k8s.command", "meter the accelerators of a Kubernetes cluster, until SIGTERM"),
    "outbox": ("metering.gateways.outbox_command",
               "send what the LiteLLM callback wrote into its outbox to the platform"),
    "slurm": ("metering.slurm.command",
              "GPU allocations from what Slurm's sacct printed (--json or --parsable2, with --duplicates)"),
    "tokens": ("metering.logs.command", "token usage from the log of a gateway: to the platform, or into a usage file"),
}  # fmt: skip
"""Commands by name: module, and purpose in words."""


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Build the command line, with the options of the command that the arguments name."""
    top = OneLineParser(prog="python -m metering", description="Usage of AI compute, measured.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if arguments and arguments[0] == name:
            loaded = import_module(module)
            loaded.add_arguments(command)
            command.set_defaults(run=loaded.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    print_anything()
    given = sys.argv[1:] if arguments is None else list(arguments)
    with contextlib.redirect_stderr(EscapedStream(sys.stderr)):
        options = parser(given).parse_args(given)
        try:
            status: int = options.run(options)
        except BrokenPipeError:
            sys.stdout = io.StringIO()
            return 0
        return status


if __name__ == "__main__":
    sys.exit(main())
