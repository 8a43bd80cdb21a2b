"""PURE: samples of metrics, from the text of a server's /metrics or from answers of Prometheus' API."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?\s*\Z")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"n": "\n"}


class SampleError(ValueError):
    """Error in metrics: the message has the line or the answer, and why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Value of one series; `time` is when Prometheus took it, None if it was just read."""

    name: str
    labels: Mapping[str, str]
    value: Decimal
    time: datetime | None = None


def read_text(text: str, wanted: re.Pattern[str]) -> Iterator[Sample]:
    r"""Yield samples whose names match, from the text format.  Raises SampleError.

    >>> list(read_text('# TYPE a counter\na{m="x",p="1"} 12.0\nb 1\n', re.compile("a")))[0].labels
    {'m': 'x', 'p': '1'}
    """
    for line in text.splitlines():
        if line.startswith("#") or not wanted.match(line):
            continue
        found = _LINE.match(line)
        if found is None:
            raise SampleError(f"not the text format of Prometheus: {line[:120]!r}")
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(found.group(2) or "")}
        yield Sample(found.group(1), labels, _value(found.group(3), line))


def read_answer(content: bytes) -> Iterator[Sample]:
    """Yield samples of an answer to an instant query.  Raises SampleError."""
    try:
        answer: Any = msgspec.json.decode(content)
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
            raise SampleError(f"Prometheus answered {str(answer.get('error') or answer['data'].get('resultType'))[:200]}")
        for series in answer["data"]["result"]:
            labels = dict(series["metric"])
            at, value = series["value"]
            yield Sample(labels.pop("__name__"), labels, _value(value, value), datetime.fromtimestamp(at, UTC))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise error if isinstance(error, SampleError) else SampleError(f"not an answer of Prometheus: {error!r}") from error


def _value(text: str, shown: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise SampleError(f"no number: {shown[:120]!r}") from error


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group(1)), value)
