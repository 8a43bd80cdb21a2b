"""PURE: parsing of JSON and YAML files into plain values with exact numbers, and the line of each field.

Numbers never pass through a binary float: in JSON they become int or Decimal, in YAML they stay the text that was
written. Duplicate fields are refused: many parsers keep the last one and hide the first.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import yaml

from metering.messages import Message, UserError
from pricing.fields import Path, shown

LARGEST_DOCUMENT: Final = 256 * 1024 * 1024
LARGEST_SEARCHED: Final = 1024 * 1024
MOST_NESTED: Final = 100
YAML_NULLS: Final = ("", "~", "null", "Null", "NULL")
YAML_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "a gzip archive", b"PK": "a zip archive"}


class DocumentError(UserError, ValueError):
    """File that is not a JSON or YAML document; the message has one line."""

    code = "document"


@dataclass(frozen=True)
class Document:
    """Parsed file: its name for messages, its text and its value; `notes` say what the file leaves open."""

    name: str
    text: str
    value: Any
    notes: tuple[str, ...] = ()

    def where(self, path: Path) -> str:
        """Return file and line of a field, or of the nearest mapping or list around it."""
        line = line_of(self.text, path)
        return f"{self.name} line {line}" if line else self.name


def read_text(raw: bytes, name: str) -> str:
    """Decode a file in UTF-8, with or without byte order mark.  Raises DocumentError."""
    if len(raw) > LARGEST_DOCUMENT:
        raise DocumentError(Message("%(name)s: larger than %(most)s bytes", name=name, most=LARGEST_DOCUMENT))
    for mark, kind in MARKS.items():
        if raw.startswith(mark):
            raise DocumentError(Message("%(name)s: is %(kind)s, must be text in UTF-8", name=name, kind=kind))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(Message("%(name)s: is not UTF-8 at byte %(at)s", name=name, at=error.start)) from error
    if "\0" in text:
        raise DocumentError(Message(
            "%(name)s: holds a zero byte at character %(value)s, must be text in UTF-8", name=name, value=text.index(chr(0))
        ))
    if not text.strip():
        raise DocumentError(Message("%(name)s: is empty", name=name))
    return text


def parse_document(raw: bytes, name: str) -> Document:
    """Parse one JSON or YAML document.  Raises DocumentError with one line that names file and line.

    >>> parse_document(b'{"pue": 1.3}', "a.json").value, parse_document(b"pue: 1.30", "a.yaml").value
    ({'pue': Decimal('1.3')}, {'pue': '1.30'})
    """
    text = read_text(raw, name)
    # by content for names without suffix, such as "-" for standard input
    is_json = name.lower().endswith(".json") or text.lstrip()[0] in "{["
    if is_json and not name.lower().endswith((".yaml", ".yml")):
        return Document(name, text, parse_json(text, name))
    return Document(name, text, parse_yaml(text, name))


def parse_json(text: str, name: str, first_line: int = 1) -> Any:
    """Parse a JSON value; non-integers become Decimal, NaN and duplicate fields are refused.  Raises DocumentError."""
    try:
        return json.loads(
            text, parse_float=Decimal, parse_int=_integer, parse_constant=_no_constant, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        ended = error.pos >= len(text.rstrip())
        what = Message("is no JSON: %(reason)s", reason=error.msg)
        if ended:
            what = Message("ends in the middle of a value, is it truncated?")
        raise DocumentError(Message(
            "%(name)s line %(line)s: %(what)s (column %(colno)s)", name=name, line=line, what=what, colno=error.colno
        )) from error
    except RecursionError as error:
        raise DocumentError(Message("%(name)s line %(line)s: is nested too deeply", name=name, line=first_line)) from error
    except DocumentError as error:
        raise DocumentError(Message(
            "%(name)s line %(line)s: %(error)s", name=name, line=first_line, error=error
        ) if first_line > 1 else Message(
            "%(field)s: %(text)s", field=name, text=error
        )) from error


def parse_json_lines(text: str, name: str) -> list[Any]:
    """Parse one JSON value per line; empty lines are skipped.  Raises DocumentError naming the line."""
    return [
        parse_json(line, name, number) for number, line in enumerate(text.splitlines(), start=1) if line.strip()
    ]


def parse_yaml(text: str, name: str) -> Any:
    """Parse YAML into mappings, lists, text, booleans and None; numbers stay text.  Raises DocumentError."""
    try:
        node = yaml.compose(text, Loader=_Composer)
        return _value(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name} line {mark.line + 1}" if mark else name
        raise DocumentError(Message(
            "%(name)s: is no YAML: %(reason)s", name=where, reason=error.problem or error.context
        )) from error
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if not isinstance(error, RecursionError) else "nested too deeply"
        raise DocumentError(Message("%(name)s: is no YAML: %(reason)s", name=name, reason=reason)) from error


def line_of(text: str, path: Path) -> int | None:
    """Return the line of a field, or of the nearest mapping around it; None where it is unknown."""
    if len(text) > LARGEST_SEARCHED:
        return None
    try:
        # JSON is read as YAML here, and YAML forbids the tabs that JSON may be indented with
        node = yaml.compose(text.replace("\t", " "), Loader=_Composer)
    except (yaml.YAMLError, RecursionError):
        return None
    line = None
    for step in path:
        mark, node = _step(node, step)
        if mark is None:
            break
        line = mark
    return line


class _Composer(yaml.SafeLoader):
    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Refuse deep nesting before it is read: the scanner checks every open bracket for each further one."""
        if self.flow_level == MOST_NESTED:
            raise yaml.scanner.ScannerError(None, None, "nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(token)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; refuse references, since nested ones expand without end."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "references (*name) are not read", self.get_mark())
        return super().compose_node(parent, index)


def _step(node: yaml.Node | None, step: str | int) -> tuple[int | None, yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None, None


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return dict(_pairs(node))
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return node.value
    return None if node.value in YAML_NULLS else YAML_BOOLEANS.get(node.value, node.value)


def _pairs(node: yaml.MappingNode) -> Iterator[tuple[str, Any]]:
    seen = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a field name must be text", key.start_mark)
        if key.value in seen:
            reason = f"field {shown(key.value)} is given twice"
            raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)
        seen.add(key.value)
        yield key.value, _value(value)


def _integer(text: str) -> int | Decimal:
    # int() of a long text takes quadratic time and raises above 4300 digits
    return int(text) if len(text) <= 60 else Decimal(text)


def _no_constant(text: str) -> None:
    raise DocumentError(Message("%(text)s is no number", text=text))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(Message("field %(twice)s is given twice", twice=shown(twice)))
    return fields
