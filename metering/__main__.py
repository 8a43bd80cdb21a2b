"""`python -m metering`: meters that run where Django and the database are not.

Each command imports only what it needs itself: the table in docs/agents.md names the packages of each.

Exit status 0 on success, 2 on bad usage or bad input (one line that names file, job and field).
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from metering import __version__
from metering.names import visible

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
"""Name -> the module of a command, and what it does."""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaint is one line; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line on stderr."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}, see --help\n")


class EscapedStream(io.TextIOBase):
    """Writes to another stream, each character that cannot be printed as its escape: messages quote what others named."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text line by line."""
        self._stream.write("\n".join(map(visible, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        self._stream.flush()


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The command line, with the options of the command that the arguments name."""
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
    """Run one command and give its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
