"""Canonical JSON text of a document, and its hash."""

from hashlib import sha256
from typing import Any

import msgspec

from metering.messages import as_text

_canonical = msgspec.json.Encoder(order="sorted", enc_hook=as_text).encode


def canonical_json(document: dict[str, Any]) -> str:
    """Return the canonical text of a document: sorted keys, no spaces, UTF-8 unescaped.

    >>> canonical_json({"b": "1.00", "a": None})
    '{"a":null,"b":"1.00"}'
    """
    return _canonical(document).decode()


def document_hash(text: str) -> str:
    """Return the SHA-256 of the canonical text, hexadecimal."""
    return sha256(text.encode()).hexdigest()
