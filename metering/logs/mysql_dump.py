"""PURE: rows of the INSERT statements that mysqldump and mariadb-dump write, without a database."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from metering.record_checks import RecordError

_NAME: Final = r'[`"\[]?([\w$]+)[`"\]]?'
_INSERT: Final = re.compile(
    rf"\s*INSERT\s+(?:IGNORE\s+)?INTO\s+(?:{_NAME}\.)?{_NAME}\s*(?:\(([^)]*)\))?\s*VALUES\s*", re.IGNORECASE
)
_CREATE: Final = re.compile(rf"\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:{_NAME}\.)?{_NAME}\s*\(", re.IGNORECASE)
_VALUE: Final = re.compile(
    r"""\s*(?:_binary\s+)?(?:'((?:[^'\\]+|\\.|'')*)'|(NULL)|(-?\d+)(?![\w.])|([^\s,()']+))\s*([,)])""",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_NO_COLUMN: Final = ("PRIMARY", "KEY", "UNIQUE", "CONSTRAINT", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK")


def table_columns(statement: str, table: str) -> list[str]:
    """Return the columns of a CREATE TABLE in order; none if it is another table's.

    >>> table_columns("CREATE TABLE `logs` (`id` int, `quota` decimal(10,2) DEFAULT '0', PRIMARY KEY (`id`));", "logs")
    ['id', 'quota']
    """
    found = _CREATE.match(statement)
    if found is None or found.group(2) != table:
        return []
    columns = []
    for definition in _definitions(statement[found.end() :]):
        name = re.match(rf"\s*{_NAME}\s", definition)
        if name and definition.split(maxsplit=1)[0].upper() not in _NO_COLUMN:
            columns.append(name.group(1))
    return columns


def rows_of_insert(statement: str, table: str, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    r"""Yield rows of an INSERT as {column: text, whole number or None}; none if it is another table's.  Raises RecordError.

    >>> list(rows_of_insert("INSERT INTO `logs` VALUES (1,'it''s',NULL),(2,'a\\nb',7);", "logs", ["id", "text", "n"]))
    [{'id': 1, 'text': "it's", 'n': None}, {'id': 2, 'text': 'a\nb', 'n': 7}]
    """
    found = _INSERT.match(statement)
    if found is None or found.group(2) != table:
        return
    names = [name.strip(' `"[]') for name in found.group(3).split(",")] if found.group(3) else columns
    if not names:
        raise RecordError(f"INSERT INTO {table} without columns, and no CREATE TABLE {table} before it")
    at = found.end()
    while at < len(statement) and statement[at] == "(":
        row, at = _row(statement, at + 1)
        if len(row) != len(names):
            raise RecordError(f"a row of {len(row)} values for {len(names)} columns of {table}")
        yield dict(zip(names, row, strict=True))
        at = re.compile(r"[\s,]*").match(statement, at).end()  # type: ignore[union-attr]  # nothing fits too
    if statement[at:].strip() not in ("", ";"):
        raise RecordError(f"INSERT INTO {table}: no row at character {at}")


def _row(statement: str, at: int) -> tuple[list[Any], int]:
    row: list[Any] = []
    while True:
        found = _VALUE.match(statement, at)
        if found is None:
            raise RecordError(f"INSERT: no value at character {at}")
        text, null, number, word, end = found.groups()
        row.append(_unescaped(text) if text is not None else None if null else int(number) if number else word)
        at = found.end()
        if end == ")":
            return row, at


def _unescaped(text: str) -> str:
    if "\\" not in text and "''" not in text:
        return text
    return re.sub(r"\\(.)|''", lambda found: _ESCAPES.get(found.group(1), found.group(1)) if found.group(1) else "'", text,
                  flags=re.DOTALL)  # fmt: skip


def _definitions(body: str) -> Iterator[str]:
    """Yield the definitions of a CREATE TABLE: commas in parentheses or quotes do not separate them."""
    depth, begun, quoted = 0, 0, ""
    for at, character in enumerate(body):
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "'`\"":
            quoted = character
        elif character == "(":
            depth += 1
        elif character == ")" and depth:
            depth -= 1
        elif character == ")" or (character == "," and not depth):
            yield body[begun:at]
            begun = at + 1
            if character == ")":
                return
