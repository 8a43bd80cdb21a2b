"""Terminal output of the command lines of `metering` and `pricing`; needs no package."""

import argparse
import io
import sys
from typing import Any, NoReturn

from metering.names import visible


class OneLineParser(argparse.ArgumentParser):
    """Parser that reports an error on one line; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line on stderr."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}, see --help\n")


class EscapedStream(io.TextIOBase):
    """Stream that writes to another and escapes unprintable characters: messages quote names that others chose."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text line by line."""
        self._stream.write("\n".join(map(visible, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()


def print_anything() -> None:
    """Let stdout and stderr print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
