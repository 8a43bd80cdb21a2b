"""Command `storage FILE`: cost of a month of a store, by tier and by class of requests."""

import argparse

from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines
from pricing.storage import parse_store_use

HELP = "what a month of storage and its requests cost, by tier and class"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help='{"storage": [...], "requests": [...]}, JSON or YAML, or -')
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Calculate the cost of a month and write it."""
    document = read_document(arguments.file)
    with problems_of(document):
        use = parse_store_use(document.value)
    rows = [(kind, name, format(amount, "f")) for kind, name, amount in use.lines()]
    if arguments.json:
        lines = [{"kind": kind, "name": name, "amount": amount} for kind, name, amount in rows]
        write_json({"lines": lines, "total": format(use.total, "f")})
    else:
        write_lines(table([("kind", "name", "amount"), *rows, ("total", "", format(use.total, "f"))], left=(0, 1)))
    return OK
