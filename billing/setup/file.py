"""Set-up file: read strictly, then applied through the services of each package.

Scalars are read as text and converted by the field that expects them, so that `10.10` is the decimal 10.10 and never a
binary float. Every error names file, line and field.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from metering.intervals import declared_instant
from metering.messages import Message, UserError
from metering.names import MAX_NAME_BYTES, name_problem
from pricing.fields import exact_number

T = TypeVar("T")
MAX_FILE_BYTES = 16 * 1024 * 1024


class SetUpFileError(UserError, ValueError):
    """Problem of the file, with file, line and field."""

    code = "set_up_file"

    def __init__(self, text: str | Message) -> None:
        super().__init__(Message.of(text))


class Fields(dict[str, Any]):
    """Mapping of the file that knows its line, and that of each of its fields."""

    def __init__(self, *fields: Mapping[str, Any]) -> None:
        super().__init__(*fields)
        self.line, self.lines = 0, dict[str, int]()


class _Loader(yaml.BaseLoader):
    """Loader of every scalar as text; a key that occurs twice is refused, since one of the two would be lost."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Fields:
    fields = Fields()
    fields.line = node.start_mark.line + 1
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise SetUpFileError(f"line {line}: a key must be text")
        if key in fields:
            raise SetUpFileError(f"line {line}: {key} occurs twice")
        fields[key] = loader.construct_object(value_node, deep=True)
        fields.lines[key] = line
    return fields


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_fields(path: Path) -> Fields:
    """Return the top mapping of a YAML (or JSON) file.  Raises SetUpFileError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SetUpFileError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SetUpFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SetUpFileError(f"{path}: not UTF-8 at byte {error.start}") from error
    return fields_of(text, path)


def fields_of(text: str, path: Path) -> Fields:
    """Return the top mapping of a text; `path`: its name in errors.  Raises SetUpFileError."""
    try:
        top = yaml.load(text, Loader=_Loader)  # noqa: S506 - a BaseLoader makes text, lists and mappings only
    except SetUpFileError as error:
        raise SetUpFileError(f"{path} {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise SetUpFileError(f"{path} line {line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise SetUpFileError(f"{path}: {str(error).splitlines()[0]}") from error
    if not isinstance(top, Fields):
        raise SetUpFileError(f"{path}: the file must be a mapping with sections such as `billing:` and `teams:`")
    return top


class Entry:
    """Reader of the fields of one mapping, once each; `finish` refuses fields that were not read."""

    def __init__(self, fields: object, where: str, path: Path) -> None:
        self.path, self.where = path, where
        if not isinstance(fields, Fields):
            raise SetUpFileError(f"{path}: {where} must be a mapping of fields, not {_shown(fields)}")
        self.fields, self.line, self._asked = fields, fields.line, set[str]()

    def error(self, field: str, message: str) -> SetUpFileError:
        line = self.fields.lines.get(field, self.line)
        return SetUpFileError(f"{self.path} line {line}: {self._place(field)}: {message}")

    def refused(self, error: UserError) -> SetUpFileError:
        """Return a service's refusal of this entry, with its line."""
        return SetUpFileError(f"{self.path} line {self.line}: {self.where}: {error}")

    def _place(self, field: str) -> str:
        return f"{self.where}.{field}" if self.where else field

    def has(self, field: str) -> bool:
        return field in self.fields

    def text(self, field: str, default: str | None = None, *, limit: int = 200) -> str:
        """Read a text; required unless there is a default."""
        self._asked.add(field)
        value = self.fields.get(field, default)
        if value is None:
            raise self.error(field, "is missing")
        if not isinstance(value, str):
            raise self.error(field, f"must be text, not {_shown(value)}")
        value = value.strip()
        # an empty text is a value only for a field that may be absent
        if not value and default is None:
            raise self.error(field, "is empty")
        if len(value) > limit or not value.isprintable():
            raise self.error(field, f"{_shown(value)} must be printable and at most {limit} characters")
        return value

    def name(self, field: str) -> str:
        """Read a name of usage, by the rule of `metering.names`."""
        value = self.text(field, limit=MAX_NAME_BYTES)
        problem = name_problem(value)
        if problem is not None:
            raise self.error(field, f"{_shown(value)} {problem}")
        return value

    def _converted(self, field: str, convert: Callable[[str], T], expected: str, default: T | None) -> T:
        if default is not None and not self.has(field):
            self._asked.add(field)
            return default
        text = self.text(field)
        try:
            return convert(text)
        except (ValueError, ZoneInfoNotFoundError, OSError) as error:
            raise self.error(field, f"{_shown(text)} must be {expected}") from error

    def decimal(
        self, field: str, *, places: int, at_least: str = "0", at_most: str = "1e12", default: Decimal | None = None
    ) -> Decimal:
        """Read a decimal with at most `places` decimals within bounds."""

        def convert(text: str) -> Decimal:
            number = exact_number(text)
            if number is None or not Fraction(at_least) <= number <= Fraction(at_most):
                raise ValueError
            if (number * 10**places).denominator != 1:
                raise ValueError
            # one zero for `-0` and `0.000`, which differ as text
            return Decimal(text) if number else Decimal(0)

        expected = f"a decimal from {at_least} to {at_most} with at most {places} decimals"
        return self._converted(field, convert, expected, default)

    def integer(
        self, field: str, *, at_least: int = 0, at_most: int = 1_000_000_000, default: int | None = None
    ) -> int:
        def convert(text: str) -> int:
            value = int(text)
            if not at_least <= value <= at_most:
                raise ValueError
            return value

        return self._converted(field, convert, f"a whole number from {at_least} to {at_most}", default)

    def choice(self, field: str, options: tuple[str, ...], default: str | None = None) -> str:
        def convert(text: str) -> str:
            if text not in options:
                raise ValueError
            return text

        return self._converted(field, convert, f"one of {', '.join(options)}", default)

    def flag(self, field: str) -> bool:
        return self.choice(field, ("true", "false"), "false") == "true"

    def texts(self, field: str) -> list[str]:
        """Read a list of texts; empty if it is absent."""
        items = self.value(field)
        if items is None or items == "":
            return []
        if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
            raise self.error(field, "must be a list of texts")
        return [item.strip() for item in items]

    def days(self, field: str) -> frozenset[date]:
        """Read a list of days such as 2026-10-01; none if it is absent."""
        items = self.value(field)
        if items is None or items == "":
            return frozenset()
        found = [_day(item) for item in items] if isinstance(items, list) else [None]
        days = frozenset(day for day in found if day is not None)
        if len(days) < len(found):
            raise self.error(field, "must be a list of days such as 2026-10-01, each of them once")
        return days

    def day(self, field: str) -> date | None:
        """Read a day such as 2026-10-01; None if it is absent."""
        value = self.value(field)
        found = _day(value)
        if found is None and value not in (None, ""):
            raise self.error(field, f"{str(value)[:40]!r} must be a day such as 2026-10-01")
        return found

    def zone(self, field: str) -> str:
        return self._converted(field, lambda text: ZoneInfo(text).key, "a time zone such as Asia/Shanghai", None)

    def instant(self, field: str, zone: str | None) -> datetime:
        """Read an instant with an offset, or a date: local midnight in the billing zone."""
        expected = "a date or an RFC 3339 instant with an offset, from 2000 to 2199"
        return self._converted(field, lambda text: declared_instant(text, zone), expected, None)

    def optional_instant(self, field: str, zone: str | None) -> datetime | None:
        """Read an instant or a date, or None if the field is absent or empty."""
        self._asked.add(field)
        return self.instant(field, zone) if self.fields.get(field) else None

    def value(self, field: str) -> object:
        self._asked.add(field)
        return self.fields.get(field)

    def finish(self) -> None:
        unknown = [field for field in self.fields if field not in self._asked]
        if unknown:
            raise self.error(unknown[0], f"is no field here; known are {', '.join(sorted(self._asked))}")

    def entries(self, field: str) -> Iterator["Entry"]:
        """Yield the mappings of a list field; none if it is absent."""
        items = self.value(field)
        if items is None or items == "":
            return
        if not isinstance(items, list):
            raise self.error(field, f"must be a list, not {_shown(items)}")
        for index, item in enumerate(items):
            yield Entry(item, f"{self._place(field)}[{index}]", self.path)


def declared_text(sections: Mapping[str, object]) -> str:
    """Return sections as `apply` takes them; empty without sections."""
    return yaml.safe_dump(dict(sections), sort_keys=False, allow_unicode=True, width=160) if sections else ""


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else type(value).__name__.lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _day(item: object) -> date | None:
    try:
        return item if type(item) is date else date.fromisoformat(item) if isinstance(item, str) else None
    except ValueError:
        return None
