"""Bodies of the usage doors: bounded in size, decompressed, split into raw records. Nothing here knows a rule."""

import gzip
import zlib
from io import BytesIO
from typing import Final

import msgspec
from django.conf import settings
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.request import Request

MAX_RECORDS: Final = 10_000
_raws = msgspec.json.Decoder(list[msgspec.Raw])


class TooLarge(APIException):
    """The body, or what it unpacks to, is above the limit."""

    status_code = 413
    default_detail = "Content Too Large"


def read_body(request: Request) -> bytes:
    """The whole body, unpacked.  Raises TooLarge, ParseError or UnsupportedMediaType."""
    limit: int = settings.INGEST_MAX_BYTES
    stream = request._request
    declared = stream.headers.get("Content-Length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"the body has {declared} bytes, the limit is {limit}: send smaller batches")
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(f"the body is larger than {limit} bytes: send smaller batches")
    encoding = stream.headers.get("Content-Encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding == "gzip":
        return _gunzip(body, limit)
    raise UnsupportedMediaType(encoding, f"Content-Encoding {encoding!r}: send identity or gzip")


def _gunzip(body: bytes, limit: int) -> bytes:
    """All members of the body (RFC 1952); a client that appends compressed chunks sends several."""
    try:
        unpacked = gzip.GzipFile(fileobj=BytesIO(body)).read(limit + 1)
    except EOFError as error:
        raise ParseError("the gzip body ends in the middle") from error
    except (OSError, zlib.error) as error:
        raise ParseError(f"the body is not valid gzip: {error}") from error
    if len(unpacked) > limit:
        raise TooLarge(f"the body unpacks to more than {limit} bytes: send smaller batches")
    return unpacked


def raw_records(body: bytes) -> list[msgspec.Raw | bytes]:
    """The records of a JSON array or of newline-delimited JSON, still unread.  Raises ParseError or TooLarge."""
    text = body.lstrip()
    if not text:
        raise ParseError("the body is empty: send a JSON array of records, or one record a line")
    raws: list[msgspec.Raw | bytes]
    if text.startswith(b"["):
        try:
            raws = list(_raws.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ParseError(f"the body is not a JSON array: {error}") from error
    else:
        raws = [line for line in text.split(b"\n") if line.strip()]
    return bounded(raws)


def bounded(raws: list[msgspec.Raw | bytes]) -> list[msgspec.Raw | bytes]:
    """The same list.  Raises TooLarge above the limit of one batch."""
    if len(raws) > MAX_RECORDS:
        raise TooLarge(f"the batch has {len(raws)} records, the limit is {MAX_RECORDS}")
    return raws
