"""PURE: checked fields of an input mapping. Every bad field gets its own message; no field is guessed.

A message names the field, the value and the expected range, and says what a value outside of it usually means.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from metering.messages import Message, UserError
from metering.names import MAX_NAME_BYTES, name_problem
from pricing.money import CURRENCY

NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\Z")
GROUPED: Final = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
LONGEST_NUMBER: Final = 60
LARGEST_EXPONENT: Final = 60
"""Exponent limit: 1e999999999 is eleven characters and a gigabyte as an integer."""

SHOWN_CHARACTERS: Final = 60
FLAGS: Final = ("true", "false")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """Problem of one field: its path in the input, and the message."""

    path: Path
    text: Message

    @property
    def message(self) -> Message:
        """Return the message with the path of the field."""
        return Message("%(field)s: %(text)s", field=path_text(self.path), text=self.text)

    @property
    def field(self) -> str:
        """Return the name at the beginning of the path."""
        return str(self.path[0]) if self.path else ""

    def __str__(self) -> str:
        return str(self.message)


class InputError(UserError, ValueError):
    """Input that cannot be priced; `messages` has one line per bad field."""

    code = "input"

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = list(problems)
        super().__init__(Message.joined(self.messages))

    @property
    def messages(self) -> list[Message]:
        """Return one line per bad field, each beginning with the field."""
        return [problem.message for problem in self.problems]


@dataclass(frozen=True, slots=True)
class Bound:
    """Range of a numeric field. `hint` says what a value outside of it usually means."""

    low: str
    high: str
    unit: str
    hint: str = ""
    whole: bool = False
    above_low: bool = False
    below_high: bool = False

    @property
    def expected(self) -> Message:
        """Return the range in words.

        >>> Bound("0", "1", "ratio", "5 % is 0.05", above_low=True).expected
        'must be a number above 0 up to 1 (ratio): 5 % is 0.05'
        """
        kind = Message("a whole number") if self.whole else Message("a number")
        start = Message("above %(low)s", low=self.low) if self.above_low else Message("from %(low)s", low=self.low)
        range_ = Message(
            "must be %(kind)s %(start)s %(end)s (%(unit)s)", kind=kind, start=start, end=self._end, unit=Message(self.unit)
        )
        return Message("%(range)s: %(hint)s", range=range_, hint=Message(self.hint)) if self.hint else range_

    @property
    def _end(self) -> Message:
        if self.below_high:
            return Message("to below %(high)s", high=self.high)
        return Message("up to %(high)s", high=self.high) if self.above_low else Message("to %(high)s", high=self.high)

    def holds(self, number: Fraction) -> bool:
        """Return True if `number` lies in the range."""
        low, high = Fraction(self.low), Fraction(self.high)
        return (
            low <= number <= high
            and not (self.above_low and number == low)
            and not (self.below_high and number == high)
            and not (self.whole and number.denominator != 1)
        )


def ungrouped(text: str) -> str:
    """Remove the commas between thousands of a number; any other comma stays, so that the text is no number.

    "8,5" is eight and a half in half of the world: read as 85 it would be ten times as much money.

    >>> ungrouped("1,234,567.50"), ungrouped("8,5"), ungrouped("1,23,456")
    ('1234567.50', '8,5', '1,23,456')
    """
    return text.replace(",", "") if GROUPED.fullmatch(text) else text


def exact_number(given: object) -> Fraction | None:
    """Convert decimal text, integer, Decimal or Fraction exactly; return None for anything else, also a binary float.

    Digits are not grouped: `1_000` may be a slip for 1.000 as well as a thousand, and `Decimal` takes it in silence.

    >>> exact_number("0.1"), exact_number("1_000"), exact_number(0.1), exact_number("10%"), exact_number("NaN")
    (Fraction(1, 10), None, None, None, None)
    """
    # bool is an int in Python: true would be 1
    if isinstance(given, bool):
        return None
    if isinstance(given, int | Fraction):
        return Fraction(given)
    if isinstance(given, Decimal):
        given = str(given)
    if not isinstance(given, str):
        return None
    text = given.strip()
    if len(text) > LONGEST_NUMBER or not NUMBER.match(text):
        return None
    number = Decimal(text)
    return Fraction(number) if not number or abs(number.adjusted()) <= LARGEST_EXPONENT else None


def shown(given: object) -> str:
    """Quote `given` for a message: one line, not too long."""
    text = str(given) if isinstance(given, int | Decimal) and not isinstance(given, bool) else repr(given)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def path_text(path: Path) -> str:
    """Format a path for a message.

    >>> path_text(("runs", 2, "duration_s"))
    'runs[2].duration_s'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() and len(step) <= SHOWN_CHARACTERS else shown(step))
    return text or "the file"


class FieldReader:
    """Reader of the fields of one mapping that collects all problems.

    Values are None where a problem was noted, so that one pass finds every bad field.
    """

    def __init__(self, given: object, what: str, path: Path = (), problems: list[FieldProblem] | None = None) -> None:
        self.what = what
        self.path = path
        self.problems = [] if problems is None else problems
        self.fields: Mapping[str, Any] = {}
        self.is_mapping = isinstance(given, Mapping)
        if isinstance(given, Mapping):
            self.fields = given
        else:
            self.problems.append(FieldProblem(path, Message(
                "must be a mapping of the fields of %(what)s, not %(given)s", what=what, given=_kind(given)
            )))

    def has(self, name: str) -> bool:
        """Return True if the field is there and not empty."""
        value = self.fields.get(name)
        return value is not None and not (isinstance(value, str) and not value.strip())

    def refuse(self, name: str | int, text: Message) -> None:
        """Note a problem of a field."""
        self.problems.append(FieldProblem((*self.path, name), text))

    def number(self, name: str, bound: Bound, default: str | None = None) -> Fraction | None:
        """Read a required number, or the default where the field is absent."""
        if self.has(name):
            return self._checked((name,), self.fields[name], bound)
        if default is None:
            self.refuse(name, Message("is missing, %(range)s", range=bound.expected))
        return None if default is None else Fraction(default)

    def decimal(self, name: str, bound: Bound, default: str | None = None) -> Decimal | None:
        """Read a number as Decimal with its digits as written: bands are compared unrounded."""
        number = self.number(name, bound, default)
        given = self.fields[name] if self.has(name) else default
        return None if number is None else Decimal(str(given).strip())

    def optional(self, name: str, bound: Bound) -> Fraction | None:
        """Read a number, or None where the field is absent or empty."""
        return self.number(name, bound) if self.has(name) else None

    def given(self, bounds: Mapping[str, Bound]) -> dict[str, Fraction]:
        """Read optional numbers; return those that are present and valid."""
        numbers = {name: self.optional(name, bound) for name, bound in bounds.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    def text(self, name: str, default: str | None = None, limit: int = 256) -> str:
        """Read printable text; "" where a problem was noted."""
        given = self.fields.get(name)
        if not self.has(name):
            if default is None:
                self.refuse(name, Message("is missing, must be text of up to %(limit)s characters", limit=limit))
            return default or ""
        if not isinstance(given, str | int | Decimal) or isinstance(given, bool):
            self.refuse(name, Message(
                "%(value)s must be text of up to %(limit)s characters", value=shown(given), limit=limit
            ))
            return ""
        text = str(given).strip()
        if len(text) > limit or not text.isprintable():
            self.refuse(name, Message(
                "%(value)s must be printable text of up to %(limit)s characters", value=shown(text), limit=limit
            ))
            return ""
        return text

    def name(self, name: str, default: str | None = None) -> str:
        """Read a name that usage may have, by the rule of `metering.names`; "" where a problem was noted."""
        text = self.text(name, default, MAX_NAME_BYTES)
        problem = name_problem(text) if text else None
        if problem is not None:
            self.refuse(name, Message("%(value)s %(range)s", value=shown(text), range=problem))
            return ""
        return text

    def currency(self, name: str, default: str | None = None) -> str:
        """Read a currency code; where a problem was noted, return the text as given."""
        text = self.text(name, default)
        if text and not CURRENCY.match(text):
            self.refuse(name, Message("%(value)s must be three capital letters such as CNY", value=repr(text)))
        return text

    def choice(self, name: str, options: Sequence[str], default: str) -> str:
        """Read one of a few words; the default where the field is absent, or where a problem was noted."""
        given = self.fields.get(name)
        if not self.has(name):
            return default
        text = str(given).strip()
        if isinstance(given, bool) or text not in options:
            either = reduce(lambda one, other: Message("%(one)s or %(other)s", one=one, other=other), options)
            self.refuse(name, Message("%(value)s must be %(options)s", value=shown(given), options=either))
            return default
        return text

    def flag(self, name: str) -> bool:
        """Read a boolean; False where the field is absent, or where a problem was noted."""
        # JSON and YAML give True, people write true or TRUE
        text = str(self.fields.get(name)).strip().lower()
        return text == "true" if text in FLAGS else self.choice(name, FLAGS, "false") == "true"

    def day(self, name: str) -> date | None:
        """Read a day such as 2026-10-01; None where it is absent, or where a problem was noted."""
        if not self.has(name):
            return None
        try:
            return date.fromisoformat(str(self.fields[name]).strip())
        except ValueError:
            self.refuse(name, Message(
                "%(value)s must be a day such as %(day)s", value=shown(self.fields[name]), day="2026-10-01"
            ))
            return None

    def together(self, *names: str) -> None:
        """Refuse each absent field of a group of which at least one is given."""
        given = [name for name in names if self.has(name)]
        for name in names if given else ():
            if name not in given:
                self.refuse(name, Message("is missing, but %(other)s is given", other=given[0]))

    def refuse_beside(self, name: str, other: str) -> None:
        """Refuse a field that is given beside its alternative `other`."""
        if self.has(name):
            self.refuse(name, Message(
                "%(value)s is given beside %(other)s: give one of them", value=shown(self.fields[name]), other=other
            ))

    def each(self, name: str) -> Sequence[Any]:
        """Read the items of a required, non-empty list."""
        given = self.fields.get(name)
        if not self.has(name):
            self.refuse(name, Message("is missing, must be a list"))
        elif not isinstance(given, list | tuple):
            self.refuse(name, Message("%(value)s must be a list", value=shown(given)))
        elif not given:
            self.refuse(name, Message("is an empty list"))
        else:
            return given
        return ()

    def numbers(self, name: str, bound: Bound) -> list[Fraction | None]:
        """Read the numbers of a required, non-empty list; None for each bad one."""
        return [self._checked((name, index), given, bound) for index, given in enumerate(self.each(name))]

    def nested(self, given: object, what: str, *steps: str | int) -> "FieldReader":
        """Return a reader of a mapping inside this one, with the same list of problems."""
        return FieldReader(given, what, (*self.path, *steps), self.problems)

    def mappings(self, name: str, what: str, required: bool = False) -> list["FieldReader"]:
        """Return a reader per mapping of a list; refuse other items. An absent list is empty, or refused if `required`."""
        items = self.each(name) if required or self.has(name) else ()
        readers = [self.nested(item, what, name, index) for index, item in enumerate(items)]
        return [reader for reader in readers if reader.is_mapping]

    def finish(self, known: Iterable[str]) -> None:
        """Refuse every field that is not in `known`."""
        names = sorted(known)
        for name in self.fields:
            if name in names:
                continue
            close = get_close_matches(str(name), names, n=1)
            what = Message(self.what)
            self.refuse(
                str(name),
                Message("is no field of %(what)s, did you mean %(close)s?", what=what, close=close[0])
                if close else Message("is no field of %(what)s", what=what),
            )

    def _checked(self, steps: Path, given: object, bound: Bound) -> Fraction | None:
        number = exact_number(given)
        if number is None or not bound.holds(number):
            text = Message("%(value)s %(range)s", value=shown(given), range=bound.expected)
            self.problems.append(FieldProblem((*self.path, *steps), text))
            return None
        return number


def _kind(given: object) -> str:
    if isinstance(given, list | tuple):
        return Message("a list")
    return Message("empty") if given is None else shown(given)
