"""How the command lines of `metering` and `pricing` speak to a terminal; needs no package."""

import argparse
import io
import sys
from typing import Any, NoReturn

from metering.names import visible


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


def print_anything() -> None:
    """Print what the encoding of the terminal lacks as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
