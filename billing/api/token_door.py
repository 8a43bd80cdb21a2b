"""The short way in for token records: the same door as `usage/tokens` of the API, without what a page needs.

Gateways may report each request by itself, thousands in a second. Sessions, languages, messages and the REST framework
would cost several times what the ledger costs, so the WSGI entry point hands `POST usage/tokens` to this module;
`billing.api.usage.TokensDoor` describes the door and serves whoever comes through Django's URLs. Both are this code.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections
from django.http.request import split_domain_port, validate_host
from rest_framework.exceptions import APIException, NotAuthenticated, PermissionDenied

from billing.api.admission import Admitted, Busy, gate
from billing.api.authentication import token_of
from billing.api.bodies import MAX_RECORDS, RECORD_BODIES, Answer, Incoming, declared_bytes, raw_records, read_body
from billing.api.problems import PROBLEM_JSON, api_problem, unavailable
from billing.tenancy.models import ApiToken
from billing.usage.services import IngestOutcome, Reporter, batch_ingest, report_ingest, token_batch
from billing.usage.services.token_batch import TokenBatch
from billing.usage.services.token_checks import are_named, says_nothing_twice
from billing.usage.services.token_columns import ReportedColumns, reported_columns
from billing.usage.services.token_dimensions import remembered_dimensions
from metering.record_checks import RecordError
from metering.records import (
    TokenUsage,
    UncheckedTokenUsage,
    decode_batch,
)

DOOR: Final = "usage/tokens"
PATH: Final = f"/api/v1/{DOOR}"
SCOPE: Final = "usage:write"

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
LARGE_BYTES: Final = 32_768
LARGE_WAIT_SECONDS: Final = 15
AT_ONCE_BYTES: Final = 16_384
"""From here on rules between fields are looked at for all records at once; what is smaller is read by who writes it."""
RECORD_BYTES: Final = 256
"""About what a record takes, at least."""
CONNECTION_CHECK_SECONDS: Final = 5

NOT_OURS: Final[Answer] = (HTTPStatus.BAD_REQUEST, "text/plain", b"Bad Request", [])

_large = threading.Lock()
_thread = threading.local()
_array = msgspec.json.Decoder(list[TokenUsage])
_line = msgspec.json.Decoder(TokenUsage)
_unchecked_array = msgspec.json.Decoder(list[UncheckedTokenUsage])
_unchecked_line = msgspec.json.Decoder(UncheckedTokenUsage)


def tokens_report(request: Incoming, admitted: Admitted, reporter: Reporter) -> IngestOutcome:
    """Read the body, decode and validate it, let the ledger take it; returns once it is durable."""
    body = read_body(request, admitted, RECORD_BODIES)
    if len(body) < AT_ONCE_BYTES:
        return report_ingest(partial(report_read_now, body, reporter), size=len(body) // RECORD_BYTES + 1)
    return batch_ingest(report_read(body, reporter))


def report_read(body: bytes, reporter: Reporter) -> TokenBatch:
    """Decode and validate a body; a large one waits until no other is being decoded.  Raises APIException."""
    if len(body) <= LARGE_BYTES:
        return report_read_now(body, reporter)
    with _turn():
        return report_read_now(body, reporter)


def report_read_now(body: bytes, reporter: Reporter) -> TokenBatch:
    """The same without waiting, for who must not: all records at once; only where one of them is wrong they are taken one
    by one, to find out which.  Raises APIException.
    """
    now = datetime.now(UTC)
    good = _all_good(body)
    if good is not None:
        cut: list[Sequence[Any]] = []

        def raw_at(index: int) -> bytes:
            if not cut:
                cut.append(raw_records(body))
            return bytes(cut[0][index])

        records, columns = good
        return token_batch(records=records, raw_at=raw_at, reporter=reporter, now=now, columns=columns)
    raws = raw_records(body)
    batch = decode_batch(TokenUsage, raws)
    return token_batch(
        records=[record for _, record in batch.records], places=[index for index, _ in batch.records],
        rejected=batch.rejected, raw_at=lambda index: bytes(raws[index]), reporter=reporter, now=now,
    )  # fmt: skip


@contextmanager
def _turn() -> Iterator[None]:
    """Large bodies are decoded one after the other; other cores are for other processes.  Raises Busy.

    Threads that take turns at Python's one lock were measured to need 40 % more of the processor for the same records.
    While the database writes one group, the next one is decoded.
    """
    if not _large.acquire(timeout=LARGE_WAIT_SECONDS):
        raise Busy(f"no large report was decoded for {LARGE_WAIT_SECONDS} s: send again later")
    try:
        yield
    finally:
        _large.release()


def token_reporter(name: str, token: ApiToken | None) -> Reporter:
    """Who reports, with the limits of its token."""
    return Reporter(name, DOOR, token.source if token else "", settings.FUTURE_TOLERANCE_SECONDS)


def _all_good(body: bytes) -> tuple[Sequence[Any], ReportedColumns | None] | None:
    """The records if every one of them is valid, with their columns if they are many; else None."""
    if b"\\" in body and b"\\u0000" in body:  # hardly any body has a character that is escaped
        return None
    together = len(body) >= AT_ONCE_BYTES
    array, line = (_unchecked_array, _unchecked_line) if together else (_array, _line)
    try:
        records: Sequence[Any] = array.decode(body) if body.lstrip()[:1] == b"[" else line.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordError):
        return None
    if not 0 < len(records) <= MAX_RECORDS or not says_nothing_twice(body, records):
        return None
    if not together:
        return (records, None) if are_named(records) else None
    columns = reported_columns(records, remembered_dimensions())
    return (records, columns) if columns.keep_the_rules() else None


class Posted:
    """What of a Django request this door reads: making a whole one costs as much as all the rest of the door."""

    __slots__ = ("META", "read")

    def __init__(self, environ: dict[str, Any]) -> None:
        self.META = environ
        self.read = environ["wsgi.input"].read


@lru_cache(maxsize=256)
def is_ours(host: str) -> bool:
    """Whether a request for this host is for us, as Django looks at it."""
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """WSGI application of this one door."""
    if monotonic() - getattr(_thread, "looked", 0.0) > CONNECTION_CHECK_SECONDS:
        close_old_connections()  # Django does so twice a request; a report that meets a dead connection is written again
        _thread.looked = monotonic()
    status, kind, body, headers = _answer(Posted(environ))
    head = [
        ("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"), *headers,
    ]  # fmt: skip
    start_response(_status_line(status), head)
    return [body]


def _answer(request: Posted) -> Answer:
    if not is_ours(request.META.get("HTTP_HOST", "")):
        return NOT_OURS
    try:
        reporter = reporter_of(token_of(request.META))
        with gate.admit(declared_bytes(request)) as admitted:
            outcome = tokens_report(request, admitted, reporter)
        return taken(outcome)
    except APIException as error:
        return refused(error)
    except (DatabaseError, InterfaceError) as error:
        close_old_connections()
        return refused(error)


def reporter_of(token: ApiToken | None) -> Reporter:
    """Who reports with this token.  Raises NotAuthenticated without one, PermissionDenied if it may not report."""
    if token is None:
        raise NotAuthenticated()
    if SCOPE not in token.scopes:
        raise PermissionDenied(f"this needs the scope {SCOPE}")
    return token_reporter(f"token:{token.name}", token)


def taken(outcome: IngestOutcome) -> Answer:
    """The answer to a report that is durable."""
    if outcome.refusals:
        return HTTPStatus.OK, "application/json", msgspec.json.encode(outcome.answer()), []
    return _counted(outcome.accepted, outcome.duplicates)


@lru_cache(maxsize=1024)
def _counted(accepted: int, duplicates: int) -> Answer:
    """Most answers are one of a few."""
    outcome = IngestOutcome(accepted=accepted, duplicates=duplicates)
    return HTTPStatus.OK, "application/json", msgspec.json.encode(outcome.answer()), []


def refused(error: APIException | DatabaseError | InterfaceError) -> Answer:
    """The answer to a report of which nothing was taken.  Raises `error` where it is one of programming."""
    answer = api_problem(error) if isinstance(error, APIException) else unavailable(error)
    headers = [item for item in answer.items() if item[0] in ("Retry-After", "WWW-Authenticate")]
    return answer.status_code, PROBLEM_JSON, answer.content, headers


@lru_cache
def _status_line(status: int) -> str:
    return f"{int(status)} {HTTPStatus(status).phrase}"
