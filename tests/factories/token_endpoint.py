"""Bodies sent to the endpoint of token usage, and the answer to each."""

import gzip
import json
from typing import Any

import zstandard
from django.test import Client

from billing.api.request_metrics import OWN
from tests.factories import token_record

Answer = tuple[int, dict[str, str], Any]


def through_django(body: bytes, presented: str | None, **headers: str) -> Answer:
    environ: dict[str, Any] = dict(headers)
    kind = environ.pop("CONTENT_TYPE", "application/json")
    if presented is not None:
        environ["HTTP_AUTHORIZATION"] = f"Bearer {presented}"
    answer = Client(headers={}).post("/api/v1/usage/tokens", body, content_type=kind, **environ)
    return answer.status_code, dict(answer.items()), answer.json()


def refused_busy() -> float:
    """How many reports this process asked to come again."""
    value = OWN.get_sample_value("suanpan_ingest_refused_busy_total")
    assert value is not None
    return value


def body(*records: dict[str, Any]) -> bytes:
    return json.dumps(records).encode()


BAD = token_record(2, output_tokens=-1)
CASES: dict[str, tuple[bytes, dict[str, str]]] = {
    "records": (body(token_record(1), token_record(2)), {}),
    "one bad": (body(token_record(1), BAD, token_record(3)), {}),
    "repeats": (body(token_record(1), token_record(1), token_record(1, model="other")), {}),
    "lines": (b"\n".join(json.dumps(token_record(n)).encode() for n in (1, 2)), {"CONTENT_TYPE": "application/x-ndjson"}),
    "a bad line": (json.dumps(token_record(1)).encode() + b"\n{]", {"CONTENT_TYPE": "application/x-ndjson"}),
    "nul": (body(token_record(consumer="a\0b"), token_record(2)), {}),
    "none": (b"[]", {}),
    "empty": (b"", {}),
    "no array": (b"{", {"HTTP_CONTENT_ENCODING": "identity"}),
    "broken": (b"[{]", {}),
    "number": (b"17", {}),
    "type": (b"[]", {"CONTENT_TYPE": "text/plain"}),
    "form": (b"[]", {"CONTENT_TYPE": "application/x-www-form-urlencoded"}),
    "encoding": (b"[]", {"HTTP_CONTENT_ENCODING": "br"}),
    "gzip": (gzip.compress(body(token_record())), {"HTTP_CONTENT_ENCODING": "gzip"}),
    "zstd": (zstandard.compress(body(token_record())), {"HTTP_CONTENT_ENCODING": "zstd"}),
    "cut zstd": (zstandard.compress(body(token_record()))[:-2], {"HTTP_CONTENT_ENCODING": "zstd"}),
    "no zstd": (b"[]", {"HTTP_CONTENT_ENCODING": "zstd"}),
    "bomb": (zstandard.compress(bytes(400_000_000)), {"HTTP_CONTENT_ENCODING": "zstd"}),
    "length": (b"[]", {"CONTENT_LENGTH": "99999999999999999999"}),
}
EXPECTED = {
    "records": (200, 2), "one bad": (200, 2), "repeats": (200, 1), "lines": (200, 2), "a bad line": (200, 1),
    "nul": (200, 1), "none": (200, 0), "empty": (400, None), "no array": (200, 0),
    "broken": (400, None), "number": (200, 0), "type": (415, None), "form": (415, None), "encoding": (415, None),
    "gzip": (200, 1), "zstd": (200, 1), "cut zstd": (400, None), "no zstd": (400, None), "bomb": (413, None),
    "length": (413, None),
}  # fmt: skip
