"""PURE: what must hold of many token records, looked at together: one by one it would cost more than reading them."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np

from metering.names import name_problem, text_problem
from metering.records import DETAIL_TEXTS, DETAILS, Dimension, UncheckedTokenUsage

LARGE_BYTES: Final = 16_384
STYLE_BYTES: Final = 64
"""Enough to see whether a sender writes a blank behind its colons."""
QUOTE: Final = ord('"')
PLAIN_QUOTES: Final = 30
"""Of a record with nothing but what it must have: ten keys, five texts."""
_attributes = attrgetter("attributes")
_tags = attrgetter("tags")
_texts = tuple(attrgetter(name) for name in ("site", "provider", "status", "sequence_run"))
_sequences = attrgetter("sequence")
_details = tuple(attrgetter(name) for name in DETAILS)
_detail_texts = attrgetter(*DETAIL_TEXTS)


def says_nothing_twice(body: bytes, records: Sequence[UncheckedTokenUsage]) -> bool:
    """Whether no record of the body has a key twice: a decoder keeps the last one and says nothing.

    Each key and each text has two quotes, so that a body has more of them than its records account for where a key is
    twice. False also where a text contains quotes: then the records have to be looked at one by one.
    """
    beyond = _quotes(body) - PLAIN_QUOTES * len(records)
    if not beyond:
        return True
    attributes = [given for given in (*map(_attributes, records), *map(_tags, records)) if given is not None]
    inner = msgspec.json.encode(attributes) if attributes else b""
    texts = sum(len(records) - list(map(field, records)).count(None) for field in _texts)
    sequences = len(records) - list(map(_sequences, records)).count(None)
    beyond -= 4 * texts + 2 * (sequences + len(attributes)) + inner.count(b'"')
    if not beyond:
        return True
    numbers = [len(records) - list(map(field, records)).count(None) for field in _details]
    beyond -= 2 * sum(numbers) + 2 * sum(numbers[: len(DETAIL_TEXTS)])
    if not beyond:
        return True
    null = b'": null' if b'": ' in body[:STYLE_BYTES] else b'":null'
    return beyond == 2 * (body.count(null) - inner.count(b'":null'))


def _quotes(body: bytes) -> int:
    return body.count(b'"') if len(body) < LARGE_BYTES else int(np.count_nonzero(np.frombuffer(body, np.uint8) == QUOTE))


def are_named(records: Iterable[UncheckedTokenUsage]) -> bool:
    """Whether every name of these few records is one (`metering.names`)."""
    for record in records:
        if name_problem(record.id) is not None or not is_named(record.dimension):
            return False
        if record.sequence_run is not None and text_problem(record.sequence_run) is not None:
            return False
        if not details_are_named(record):
            return False
    return True


def details_are_named(record: UncheckedTokenUsage) -> bool:
    """Return True if every text among the details of a record is a name."""
    return all(text is None or name_problem(text) is None for text in _detail_texts(record))


@lru_cache(maxsize=65_536)
def is_named(dimension: Dimension) -> bool:
    """Whether every name of a dimension is one."""
    source, consumer, model, *others = dimension
    return not any(map(name_problem, (source, consumer, model))) and are_texts(others)


def are_texts(texts: Iterable[str | None]) -> bool:
    """Whether all of these, where there is something, print on one line."""
    return all(text is None or text_problem(text) is None for text in texts)


def are_ids(ids: Sequence[str]) -> bool:
    """Whether all of these ids are names. Hardly any has a blank, or a letter beyond ASCII."""
    together = "".join(ids)
    if together.isascii() and together.isprintable() and " " not in together:
        return True
    return not any(map(name_problem, ids))
