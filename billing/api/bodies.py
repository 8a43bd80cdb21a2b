"""Bodies of the usage endpoints: limited in size, unpacked, split into raw records; no billing rules."""

import re
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar

import msgspec
import zstandard
from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser

from billing.api.admission import Admitted, gate
from billing.api.problems import PROBLEM_JSON
from metering.raw_json import UnreadableJSONError, array_items, object_members, without_mark
from metering.records import record_error
from pricing.documents import DocumentError, parse_json

T = TypeVar("T")
MAX_RECORDS: Final = 10_000
JSON_BODY: Final = frozenset({"application/json"})
RECORD_BODIES: Final = JSON_BODY | {"application/x-ndjson", "application/ndjson", "application/jsonl"}
MAX_ZSTD_WINDOW: Final = 8 * 1024 * 1024
"""Largest window that RFC 8878 asks every decoder to support; a frame may name a far larger one to allocate."""
PIECE: Final = 256
"""Bytes unpacked at a time: zstd makes at most 8 MB of them, since four bytes can stand for a block of 128 KB."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# one body at a time: a body whose unpacked size exceeds the limit is in memory only once
_unpacking = threading.Lock()
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw])
_padding = re.compile(rb"\0*")


Answer = tuple[int, str, bytes, list[tuple[str, str]]]
"""Response of an endpoint outside Django: status, content type, body, and other headers."""


class TooLarge(APIException):
    """Error 413: the body, packed or unpacked, is above the limit."""

    status_code = 413
    default_detail = "Content Too Large"


def problem_answer(status: int, detail: str, *headers: tuple[str, str]) -> Answer:
    """Build one error as `application/problem+json`, for an endpoint outside Django."""
    title = TooLarge.default_detail if status == TooLarge.status_code else HTTPStatus(status).phrase
    fields = {"type": "about:blank", "title": title, "status": int(status), "detail": str(detail)}
    return status, PROBLEM_JSON, msgspec.json.encode(fields), list(headers)


def declared_bytes(meta: Mapping[str, Any], limit: int) -> int:
    """Return the declared Content-Length, 0 if there is none.  Raises TooLarge."""
    declared = meta.get("CONTENT_LENGTH") or ""
    if not (declared.isascii() and declared.isdigit()):
        return 0
    if len(declared) > 18 or int(declared) > limit:
        raise TooLarge(f"the body has {declared[:18]} bytes, the limit is {limit}: send smaller batches")
    return int(declared)


def read_body(request: HttpRequest, admitted: Admitted, accepted: Collection[str] = JSON_BODY) -> bytes:
    """Read and unpack the whole body, also if it is refused, as the next request of the connection follows it.

    Raises TooLarge, ParseError, UnsupportedMediaType or Busy.
    """
    # a byte beyond the limit shows that the body is too large
    return unpacked_body(request.META, request.read(settings.INGEST_MAX_BYTES + 1), admitted, accepted)


def unpacked_body(meta: Mapping[str, Any], body: bytes, admitted: Admitted, accepted: Collection[str]) -> bytes:
    """Check and unpack a body that was read, to a byte beyond the limit.  Raises what `read_body` does."""
    limit: int = settings.INGEST_MAX_BYTES
    check_content_type(meta, accepted)
    encoding = meta.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if encoding not in _UNPACKERS:
        raise UnsupportedMediaType(encoding[:80], f"Content-Encoding {encoding[:80]!r}: send identity, gzip or zstd")
    if len(body) > limit:
        del body
        raise TooLarge(f"the body is larger than {limit} bytes: send smaller batches")
    if len(body) > admitted.held:
        admitted.grow(len(body) - admitted.held)
    if encoding == "identity":
        return without_mark(bytes(body))
    with _unpacking:
        unpacked = _UNPACKERS[encoding](body, limit)
    if len(unpacked) > limit:
        del body, unpacked  # the traceback of the error would keep them in memory
        raise TooLarge(f"the body unpacks to more than {limit} bytes: send smaller batches")
    admitted.grow(len(unpacked))
    return without_mark(unpacked)


def check_content_type(meta: Mapping[str, Any], accepted: Collection[str]) -> None:
    """Raise UnsupportedMediaType if the Content-Type is not in `accepted`; its parameters are ignored."""
    given = meta.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if given and given not in accepted:
        names = " or ".join(sorted(accepted))
        raise UnsupportedMediaType(given[:80], f"Content-Type {given[:80]!r}: send {names}")


class _Unpacking(Protocol):
    """Decompressor of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, /) -> bytes:
        """Return the bytes unpacked from these."""


def _gunzip(body: bytes, limit: int) -> bytes:
    """Unpack all members of the body (RFC 1952); a client that appends compressed chunks sends several."""
    try:
        return _unpacked("gzip", "members", body, limit, lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16))
    except zlib.error as error:
        raise ParseError(f"the body is not valid gzip: {error}") from error


def _unzstd(body: bytes, limit: int) -> bytes:
    """Unpack all frames of the body (RFC 8878)."""
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
    try:
        return _unpacked("zstd", "frames", body, limit, decoder.decompressobj)
    except zstandard.ZstdError as error:
        raise ParseError(f"the body is not valid zstd: {error}") from error


def _unpacked(kind: str, parts: str, body: bytes, limit: int, unpacking: Callable[[], _Unpacking]) -> bytes:
    """Unpack up to `limit` + 1 bytes of all parts, in small pieces: a few bytes can expand to very many."""
    unpacked, view, place, number = bytearray(), memoryview(body), 0, 0
    while place < len(view) and len(unpacked) <= limit:
        part, number = unpacking(), number + 1
        if number > MAX_RECORDS:
            raise TooLarge(f"the {kind} body has more than {MAX_RECORDS} {parts}: send fewer, larger ones")
        while not part.eof and len(unpacked) <= limit:
            if place >= len(view):
                raise ParseError(f"the {kind} body ends in the middle")
            unpacked += part.decompress(view[place : place + PIECE])
            place += PIECE
        place = min(place, len(view)) - len(part.unused_data)
        if kind == "gzip":
            place = _after_padding(body, place)
    return bytes(memoryview(unpacked)[: limit + 1])


def _after_padding(body: bytes, place: int) -> int:
    """Return the start of the next member: tools that write whole blocks pad a member with zeros."""
    found = _padding.match(body, place)
    return found.end() if found else place


_UNPACKERS: Final = {"identity": lambda body, limit: body, "gzip": _gunzip, "zstd": _unzstd}


class ExactJsonParser(BaseParser):
    """Parser of JSON whose numbers never become binary floats, and whose fields occur once."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            asked = parser_context["request"]._request
            with gate.admit(declared_bytes(asked.META, settings.INGEST_MAX_BYTES)) as admitted:
                body = read_body(asked, admitted, (self.media_type,))
            return parse_json(body.decode(), "body") if body.strip() else {}
        except (DocumentError, UnicodeDecodeError) as error:
            raise ParseError(str(error)) from error


def raw_records(body: bytes) -> list[msgspec.Raw | bytes]:
    """Split a JSON array or newline-delimited JSON into undecoded records.  Raises ParseError or TooLarge."""
    text = body.lstrip()
    if not text:
        raise ParseError("the body is empty: send a JSON array of records, or one record a line")
    if text.startswith(b"["):
        return raw_items(text)
    return bounded([line for line in text.split(b"\n") if line.strip()])


def raw_items(array: bytes) -> list[msgspec.Raw | bytes]:
    """Split a JSON array into undecoded records; an invalid item affects no other.  Raises ParseError or TooLarge."""
    try:
        return bounded(list(_raws.decode(array)))
    except UNREADABLE as error:
        try:
            return bounded(list(array_items(array)))
        except UnreadableJSONError:
            raise ParseError(f"the body is not a JSON array: {error}") from error


def envelope(kind: type[T], body: bytes, records: str = "") -> tuple[T, list[msgspec.Raw | bytes]]:
    """Decode a body that is one object of `kind`; return it, and the undecoded records of its list `records`.

    A member that occurs twice is refused: of two lists one would be lost.  Raises ParseError or TooLarge.
    """
    members: dict[str, msgspec.Raw | bytes] = {}
    try:
        for name, value in object_parts(body):
            if name in members:
                raise ParseError(f"the body is not as documented: {name[:80]!r} occurs twice")
            members[name] = value
        raws = raw_items(bytes(members[records]).strip()) if records in members else []
        rest: dict[str, Any] = {name: msgspec.Raw(value) for name, value in members.items()}
        if records in members:
            rest[records] = []
        return _decoded(kind, msgspec.json.encode(rest)), raws
    except (*UNREADABLE, UnreadableJSONError) as error:
        raise ParseError(f"the body is not as documented: {error}") from error


def _decoded(kind: type[T], body: bytes) -> T:
    """Decode a body.  Raises ParseError with the field and the value at fault, or UNREADABLE."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ParseError(f"the body is not as documented: {record_error(error, body)}") from error


def object_parts(body: bytes) -> Iterable[tuple[str, msgspec.Raw | bytes]]:
    """Return names and values of an object as written, even if a value cannot be decoded.

    Raises UNREADABLE or UnreadableJSONError.
    """
    try:
        members = _envelope.decode(body)
    except UNREADABLE as error:
        if not body.lstrip().startswith(b"{"):
            raise
        try:
            return object_members(body)
        except UnreadableJSONError:
            raise error from None
    # a name that occurs twice is lost in a dict: then the quotes do not add up, and the slow way is taken
    quotes = sum(msgspec.json.encode(name).count(b'"') + bytes(value).count(b'"') for name, value in members.items())
    return members.items() if quotes == body.count(b'"') else object_members(body)


def bounded(raws: list[msgspec.Raw | bytes]) -> list[msgspec.Raw | bytes]:
    """Return the same list.  Raises TooLarge above the limit of one batch."""
    if len(raws) > MAX_RECORDS:
        raise TooLarge(f"the batch has {len(raws)} records, the limit is {MAX_RECORDS}")
    return raws
