"""PURE: key of a token record, 128 bits that identify (source, id) for ever.

An id that is a random or time-ordered UUID (RFC 9562, version 4 or 7) is the key itself, its second half masked with a
hash of its source: such an id can be read back from its key and need not be stored beside it, and keys of time-ordered
ids are ordered by time, from whatever source, so an index grows at its end. Any other id is hashed together with its
source. Ids that can be guessed, as counters can, are therefore always hashed: no sender can choose an id of its own
source that occupies the key of another's.
"""

import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final
from uuid import UUID

import msgspec

UUID_LENGTH: Final = 36
MASKED: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_pack = msgspec.msgpack.Encoder().encode


def token_key(source: str, identity: str) -> bytes:
    """Return the 16 bytes that two records share if, and only if, they are one request.

    >>> token_key("gw", "0190b5a2-7c1e-7abc-8def-0123456789ab").hex()  # the beginning is the time
    '0190b5a27c1e7abc1af9524c27af964a'
    >>> token_key("gw", "0190b5a2-7c1e-7abd-9def-0123456789ab").hex()
    '0190b5a27c1e7abd0af9524c27af964a'
    """
    if is_masked(identity):
        return (int(identity.replace("-", ""), 16) ^ source_mask(source)).to_bytes(16, "big")
    return blake2b(_pack((source, identity)), digest_size=16).digest()


def is_masked(identity: str) -> bool:
    """Return True if the id can be read back from its key."""
    return len(identity) == UUID_LENGTH and MASKED.match(identity) is not None


def masked_id(source: str, key: bytes) -> str:
    """Return the masked id (`is_masked`) of a key.

    >>> masked_id("gw", bytes.fromhex("0190b5a27c1e7abc1af9524c27af964a"))
    '0190b5a2-7c1e-7abc-8def-0123456789ab'
    """
    return str(UUID(int=int.from_bytes(key, "big") ^ source_mask(source)))


@lru_cache(maxsize=4096)
def source_mask(source: str) -> int:
    """Return the mask of a UUID's second half: the first 64 bits of SHA-256, with which the database reads ids back too."""
    return int.from_bytes(sha256(source.encode()).digest()[:8], "big")
