"""Bodies of the usage doors: bounded in size, unpacked, split into raw records. Nothing here knows a rule."""

import gzip
import re
import threading
import zlib
from collections.abc import Callable, Collection
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final, Protocol, TypeVar

import msgspec
import zstandard
from django.conf import settings
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType

from billing.api.admission import Admitted
from billing.api.problems import PROBLEM_JSON

T = TypeVar("T")
MAX_RECORDS: Final = 10_000
JSON_BODY: Final = frozenset({"application/json"})
RECORD_BODIES: Final = JSON_BODY | {"application/x-ndjson", "application/ndjson", "application/jsonl"}
MAX_ZSTD_WINDOW: Final = 8 * 1024 * 1024
"""What RFC 8878 asks every decoder to support; a frame may name far more, and its decoder would allocate it."""
ZSTD_PIECE: Final = 256
"""Bytes unpacked at a time: at most 8 MB come out of them, four bytes being a block of 128 KB."""
_unpacking = threading.Lock()
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_SURROGATES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Every escape of a JSON text; the group holds half a character alone, which is JSON by its grammar but no text."""


Answer = tuple[int, str, bytes, list[tuple[str, str]]]
"""What a door outside of Django says: status, content type, body, and what other headers it needs."""


class Incoming(Protocol):
    """What is read of a request: Django's has it, and so has the short way in for token records."""

    META: dict[str, Any]

    def read(self, size: int, /) -> bytes:
        """At most so many bytes of the body."""


class TooLarge(APIException):
    """The body, or what it unpacks to, is above the limit."""

    status_code = 413
    default_detail = "Content Too Large"


def problem_answer(status: int, detail: str, *headers: tuple[str, str]) -> Answer:
    """One error as `application/problem+json`, from a door outside of Django."""
    title = TooLarge.default_detail if status == TooLarge.status_code else HTTPStatus(status).phrase
    fields = {"type": "about:blank", "title": title, "status": int(status), "detail": detail}
    return status, PROBLEM_JSON, msgspec.json.encode(fields), list(headers)


def declared_bytes(request: Incoming) -> int:
    """The length that the request names, 0 where it names none.  Raises TooLarge."""
    limit: int = settings.INGEST_MAX_BYTES
    declared = request.META.get("CONTENT_LENGTH") or ""
    if not (declared.isascii() and declared.isdigit()):
        return 0
    if len(declared) > 18 or int(declared) > limit:
        raise TooLarge(f"the body has {declared[:18]} bytes, the limit is {limit}: send smaller batches")
    return int(declared)


def read_body(request: Incoming, admitted: Admitted, accepted: Collection[str] = JSON_BODY) -> bytes:
    """The whole body, unpacked.  Raises TooLarge, ParseError, UnsupportedMediaType or Busy."""
    limit: int = settings.INGEST_MAX_BYTES
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    body = request.read(limit + 1)  # also of what is refused: the next request of the connection stands behind it
    check_content_type(request, accepted)
    if encoding not in _UNPACKERS:
        raise UnsupportedMediaType(encoding[:80], f"Content-Encoding {encoding[:80]!r}: send identity, gzip or zstd")
    if len(body) > limit:
        del body
        raise TooLarge(f"the body is larger than {limit} bytes: send smaller batches")
    admitted.grow(max(len(body) - admitted.held, 0))
    if encoding == "identity":
        return bytes(body)
    with _unpacking:  # one after the other: what only unpacking will show to be too large is in memory once
        unpacked = _UNPACKERS[encoding](body, limit)
    if len(unpacked) > limit:
        del body, unpacked  # the error would keep them for as long as anybody keeps it
        raise TooLarge(f"the body unpacks to more than {limit} bytes: send smaller batches")
    admitted.grow(len(unpacked))
    return unpacked


def check_content_type(request: Incoming, accepted: Collection[str]) -> None:
    """Raise UnsupportedMediaType if the request says something else than `accepted`; parameters do not matter."""
    given = request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if given and given not in accepted:
        names = " or ".join(sorted(accepted))
        raise UnsupportedMediaType(given[:80], f"Content-Type {given[:80]!r}: send {names}")


def _gunzip(body: bytes, limit: int) -> bytes:
    """All members of the body (RFC 1952); a client that appends compressed chunks sends several."""
    try:
        return gzip.GzipFile(fileobj=BytesIO(body)).read(limit + 1)
    except EOFError as error:
        raise ParseError("the gzip body ends in the middle") from error
    except (OSError, zlib.error) as error:
        raise ParseError(f"the body is not valid gzip: {error}") from error


def _unzstd(body: bytes, limit: int) -> bytes:
    """All frames of the body (RFC 8878). A few bytes can stand for very many, so they are fed in small pieces."""
    unpacked = bytearray()
    view, place, frames = memoryview(body), 0, 0
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    try:
        while place < len(view) and len(unpacked) <= limit:
            frame, frames = decoder.decompressobj(), frames + 1
            if frames > MAX_RECORDS:
                raise TooLarge(f"the zstd body has more than {MAX_RECORDS} frames: send fewer, larger ones")
            while not frame.eof and len(unpacked) <= limit:
                if place >= len(view):
                    raise ParseError("the zstd body ends in the middle")
                unpacked += frame.decompress(view[place : place + ZSTD_PIECE])
                place += ZSTD_PIECE
            place = min(place, len(view)) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise ParseError(f"the body is not valid zstd: {error}") from error
    return bytes(memoryview(unpacked)[: limit + 1])


_UNPACKERS: Final = {"identity": lambda body, limit: body, "gzip": _gunzip, "zstd": _unzstd}


def raw_records(body: bytes) -> list[msgspec.Raw | bytes]:
    """The records of a JSON array or of newline-delimited JSON, still unread.  Raises ParseError or TooLarge."""
    text = body.lstrip()
    if not text:
        raise ParseError("the body is empty: send a JSON array of records, or one record a line")
    raws: list[msgspec.Raw | bytes]
    if text.startswith(b"["):
        try:
            raws = list(decoded(_raws.decode, text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ParseError(f"the body is not a JSON array: {error}") from error
    else:
        raws = [line for line in text.split(b"\n") if line.strip()]
    return bounded(raws)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """What `decode` makes of a JSON body in which one record may hold half a character alone (U+D800 to U+DFFF).

    A bad record never fails its batch: the half becomes a NUL, which no field of a record may hold, so that its record is
    refused by itself where it is a field of it, and nothing happens where it is content that is thrown away.
    Raises what `decode` does.
    """
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = _SURROGATES.sub(lambda found: b"\\u0000" if found[1] else found[0], body)
        if whole == body:
            raise
    return decode(whole)


def bounded(raws: list[msgspec.Raw | bytes]) -> list[msgspec.Raw | bytes]:
    """The same list.  Raises TooLarge above the limit of one batch."""
    if len(raws) > MAX_RECORDS:
        raise TooLarge(f"the batch has {len(raws)} records, the limit is {MAX_RECORDS}")
    return raws
