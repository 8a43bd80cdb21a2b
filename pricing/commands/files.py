"""Reading of the files named on the command line, and one line on stderr per problem."""

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from pricing.documents import Document, DocumentError, parse_document
from pricing.fields import Bound, InputError, exact_number, shown

OK = 0
NOT_WRITTEN = 1
BAD_INPUT = 2
UNDECIDED = 3


class CommandError(Exception):
    """End of a command: lines for stderr and an exit status."""

    def __init__(self, lines: Sequence[str], status: int = BAD_INPUT) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.status = status


def number_in(bound: Bound) -> Callable[[str], Fraction]:
    """Return a type for argparse: an exact number within its bound."""

    def convert(text: str) -> Fraction:
        number = exact_number(text)
        if number is None or not bound.holds(number):
            raise ArgumentTypeError(f"{shown(text)} {bound.expected}")
        return number

    return convert


def read_bytes(name: str) -> bytes:
    """Read the bytes of a file, or of standard input for "-".  Raises CommandError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError([f"{name}: {error.strerror or error}"]) from error
    except ValueError as error:
        raise CommandError([f"{name!r}: {error}"]) from error


def read_document(name: str) -> Document:
    """Read a JSON or YAML file.  Raises CommandError."""
    try:
        return parse_document(read_bytes(name), name)
    except DocumentError as error:
        raise CommandError([str(error)]) from error


@contextmanager
def problems_of(document: Document) -> Iterator[None]:
    """Turn bad fields into one line each, with file and line."""
    try:
        yield
    except InputError as error:
        raise CommandError([f"{document.where(problem.path)}: {problem}" for problem in error.problems]) from error


def write_json(value: Any) -> None:
    """Write one JSON document to stdout; decimals that were given as numbers stay numbers."""
    encoded = msgspec.json.format(msgspec.json.Encoder(decimal_format="number").encode(value), indent=1)
    write_lines([encoded.decode()])


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout and flush, so that a failure changes the exit status.  Raises CommandError."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    # `main` handles a reader that closed the pipe: no error, unlike a full disk
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError([f"standard output: {error.strerror}"], NOT_WRITTEN) from error


def write_notes(notes: Iterable[str]) -> None:
    """Write the assumptions of an answer to stderr: the answer itself goes to stdout."""
    sys.stderr.write("".join(f"{note}\n" for note in notes))


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Align rows as lines: the first row is the header, columns in `left` are text, others are numbers.

    >>> table([("name", "cost"), ("power", "1.326")])
    ['name    cost', 'power  1.326']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(widths[column]) if column in left else cell.rjust(widths[column]) for column, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
