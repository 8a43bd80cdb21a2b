"""Common parts of commands: exit statuses, JSON, one-line errors, progress on a terminal."""

import json
import os
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

import msgspec
from django.core.management.base import BaseCommand, OutputWrapper
from django.db import DataError, OperationalError, ProgrammingError
from django.utils import timezone
from psycopg.errors import UndefinedTable

from billing.runtime.progress import ProgressCallback, no_progress, progress_text, throttled
from billing.tenancy.access import Right
from billing.tenancy.actors import Actor, actor_at_command
from billing.tenancy.models import ApiToken
from billing.tenancy.selectors import NoSetupError
from billing.tenancy.tokens import api_token_find
from metering.intervals import IntervalError
from metering.messages import UserError, as_text
from metering.names import visible

DONE, BAD_INPUT, DECIDE = 0, 2, 3
"""Exit statuses of every command: it is done; the input is bad, one line says which; it ran, and a person must decide."""
MAX_ACTOR = 200
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=as_text).encode


class VisibleOutput(OutputWrapper):
    """Output that escapes unprintable characters, so that reported names cannot control a terminal."""

    def write(  # type: ignore[override]  # OutputWrapper itself returns nothing, unlike the text file that it is
        self, msg: str = "", style_func: Any = None, ending: str | None = None
    ) -> None:  # fmt: skip
        super().write("\n".join(map(visible, str(msg).split("\n"))), style_func, ending)


SHARED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "month": ("month", {"metavar": "2026-10"}),
    "by": ("--by", {"metavar": "USER", "help": "the account that does this (or SUANPAN_OPERATOR)"}),
    "json": ("--json", {"action": "store_true", "help": "print one JSON document on stdout"}),
}


class AppCommand(BaseCommand):
    """Command whose `run` returns its exit status: 0 done, 2 bad input, 3 a person must decide."""

    requires_system_checks: list[str] = []
    run: Callable[..., int]
    """Method of each command that does the work with its options by name and returns the exit status."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Return a parser whose usage errors exit with 2 and one line."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.error = fail  # type: ignore[method-assign]  # argparse has no other way to set it on a parser made elsewhere
        for action in parser._actions:
            if isinstance(action, _SubParsersAction):
                for chosen in action.choices.values():
                    chosen.error = fail
        return parser

    def take(self, parser: ArgumentParser, *names: str) -> None:
        """Add options that several commands share, in this order."""
        for name in names:
            flag, rules = SHARED[name]
            parser.add_argument(flag, **rules)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute the command with stdout and stderr wrapped by `VisibleOutput`."""
        for name, standard in (("stdout", self.stdout), ("stderr", self.stderr)):
            out: Any = options.pop(name, None) or standard._out
            setattr(self, name, VisibleOutput(out))
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        _refuse_broken_text(options)
        try:
            status = self.run(**options)
        except (UserError, IntervalError, NoSetupError) as error:
            fail(str(error))
        except DataError as error:
            fail(f"a value is too long or out of range: {str(error).splitlines()[0]}")
        except ProgrammingError as error:
            if not isinstance(error.__cause__, UndefinedTable):
                raise
            fail("the database has no tables of Suanpan yet, or old ones: run `manage.py migrate`")
        except OperationalError as error:
            fail(f"the database cannot be reached: {str(error).splitlines()[0]}")
        if status:
            sys.exit(status)

    def say(self, text: str = "") -> None:
        """Print one line on stdout, flushed also into a pipe; a line break in a name does not end it."""
        self.stdout.write(visible(text))
        self.stdout.flush()

    def progress(self) -> ProgressCallback:
        """Return a callback that writes progress to stderr if that is a terminal, else one that does nothing."""
        if not self.stderr.isatty():
            return no_progress
        return throttled(lambda step, done, total: self.stderr.write(progress_text(step, done, total)))

    def print_json(self, value: object) -> None:
        """Print one JSON document on stdout; decimals keep their digits."""
        text = msgspec.json.format(_encode(value), indent=2).decode()
        self.stdout.write("".join([letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]
                                   for letter in text]))  # fmt: skip


def number_of(number: int, word: str) -> str:
    """Format a number with its noun: ``1 invoice``, ``2 invoices``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def amount_text(amount: Decimal | None) -> str | None:
    """Format an amount or a price for JSON: a decimal string with its digits, which no reader takes for a float."""
    return None if amount is None else format(amount, "f")


def _refuse_broken_text(options: dict[str, Any]) -> None:
    """Fail on options that are not UTF-8: they arrive with lone surrogates, which no database stores."""
    for name, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii() and text != text.encode(errors="ignore").decode():
                fail(f"{name} {text[:40]!r}: is not valid UTF-8")


def fail(message: str) -> NoReturn:
    """Exit for bad usage or bad input: one line on stderr, status 2."""
    line = visible(" ".join(str(message).split()))
    print(f"error: {line}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


def operator(given: str | None, *rights: Right, needed: bool = True) -> Actor:
    """Return the actor of a command: the active account named by `--by` or SUANPAN_OPERATOR, with one of the rights.

    A name proves nothing; a token of that account in SUANPAN_TOKEN does, and the audit log records it.
    Without a name, a command that needs no account (`needed`) runs as the login name.
    """
    name = os.environ.get("SUANPAN_OPERATOR", "") if given is None else given
    if given is not None and (len(name) > MAX_ACTOR or not name.isprintable() or not name.strip()):
        fail(f"--by {name[:40]!r}: must be printable, not blank, and at most {MAX_ACTOR} characters")
    actor = actor_at_command(name, _shown())
    if name:
        _require(actor, rights)
    elif needed:
        which = f" with the right {' or '.join(rights)}" if rights else ""
        fail(f"--by USER (or SUANPAN_OPERATOR): is missing; this takes an active account{which}")
    return actor


def _require(actor: Actor, rights: tuple[Right, ...]) -> None:
    if actor.account is None:
        fail(f"--by {str(actor)!r}: no active account of that name (the first one: `first_account:` of the set-up file)")
    if rights and not any(actor.may(right) for right in rights):
        fail(f"--by {str(actor)!r}: this takes an account with the right {' or '.join(rights)} (`manage.py role grant`)")


def _shown() -> ApiToken | None:
    presented = os.environ.get("SUANPAN_TOKEN", "")
    return api_token_find(presented=presented, now=timezone.now()) if presented else None


def approver(given: str | None, *rights: Right) -> Actor:
    """Return the actor who approves: an operator with an own API token in SUANPAN_TOKEN, made in person."""
    actor = operator(given)
    if actor.strength is None:
        fail(f"SUANPAN_TOKEN: must be an API token of {actor}, made in person on the page 'My tokens' or with such a token")
    _require(actor, rights)
    return actor


class ProgressBar:
    """Progress bar on a terminal, without effect elsewhere; called with each increment, ends at the total or on `close`."""

    def __init__(self, total: int | None, text: str) -> None:
        self._bar: Any = None
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(text, total=total)

    def __call__(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=count)
            if self._bar.finished:
                self.close()

    def close(self) -> None:
        """Stop the bar and release the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def progress(total: int | None, text: str) -> ProgressBar:
    """Return a bar of `total` steps, or of an unknown number."""
    return ProgressBar(total, text)
