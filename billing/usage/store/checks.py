"""PURE: checks of many token records at once: one by one they would cost more than reading the records."""

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
"""Bytes enough to detect whether a sender writes a blank after colons."""
QUOTE: Final = ord('"')
PLAIN_QUOTES: Final = 30
"""Quotes of a record with required fields only: ten keys, five texts."""
_attributes = attrgetter("attributes")
_tags = attrgetter("tags")
_texts = tuple(attrgetter(name) for name in ("site", "provider", "status", "sequence_run"))
_sequences = attrgetter("sequence")
_details = tuple(attrgetter(name) for name in DETAILS)
_detail_texts = attrgetter(*DETAIL_TEXTS)


def says_nothing_twice(body: bytes, records: Sequence[UncheckedTokenUsage]) -> bool:
    """Return True if no record of the body has a key twice, of which a decoder silently keeps the last.

    Each key and each text has two quotes, so a body with a repeated key has more quotes than its records account for. False
    also if a text contains quotes: then the records have to be checked one by one.
    """
    beyond = _quotes(body) - PLAIN_QUOTES * len(records)
    if not beyond:
        return True
    # an optional text has four quotes with its key, a number or an object two; an object's inner quotes are added
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
    # what is left may be keys with an explicit null
    null = b'": null' if b'": ' in body[:STYLE_BYTES] else b'":null'
    return beyond == 2 * (body.count(null) - inner.count(b'":null'))


def _quotes(body: bytes) -> int:
    return body.count(b'"') if len(body) < LARGE_BYTES else int(np.count_nonzero(np.frombuffer(body, np.uint8) == QUOTE))


def are_named(records: Iterable[UncheckedTokenUsage]) -> bool:
    """Return True if every name of these few records is valid (`metering.names`)."""
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
    """Return True if every name of a dimension is valid."""
    source, consumer, model, *others = dimension
    return not any(map(name_problem, (source, consumer, model))) and are_texts(others)


def are_texts(texts: Iterable[str | None]) -> bool:
    """Return True if every text that is not None prints on one line."""
    return all(text is None or text_problem(text) is None for text in texts)


def are_ids(ids: Sequence[str]) -> bool:
    """Return True if all of these ids are valid names; tested as one string first, since hardly any needs more."""
    together = "".join(ids)
    if together.isascii() and together.isprintable() and " " not in together:
        return True
    return not any(map(name_problem, ids))
