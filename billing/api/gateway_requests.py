"""Gateway requests over ASGI: `POST usage/tokens`, `budgets/check`, `budgets/reservations`, `budgets/authorize`.

The thread of the server reads and answers; all reports that wait are written in one transaction, so that thousands of
reports a second need no thread each. The code behind is that of the endpoints in Django, and so are the answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.http.request import split_domain_port, validate_host
from rest_framework.exceptions import APIException, NotAuthenticated, PermissionDenied

from billing.api.admission import Admitted, gate
from billing.api.authentication import token_of
from billing.api.bodies import RECORD_BODIES, Answer, TooLarge, declared_bytes, problem_answer, unpacked_body
from billing.api.budget_check import (
    GATEWAY_AUTHORIZATION,
    MOST_BODY,
    QUESTION_HEADERS,
    SCOPE,
    Refused,
    budget_answer,
    gateway_credentials,
    is_authorization,
    is_question,
)
from billing.api.problems import PROBLEM_JSON, api_problem, unavailable
from billing.api.token_reports import report_read, report_read_now
from billing.tenancy.actors import actor_of_token
from billing.tenancy.models import ApiToken
from billing.tenancy.token_addresses import token_address_is_known
from billing.tenancy.tokens import api_token_recent
from billing.usage.services import IngestOutcome, LoopWriter, Reporter
from billing.usage.services.token_batch import TokenBatch

logger = logging.getLogger(__name__)
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]
"""Headers of a request, by names in lower case; the first of two equal names."""
Meta = dict[str, Any]

ENDPOINT: Final = "usage/tokens"
PATH: Final = f"/api/v1/{ENDPOINT}"
REPORTS: Final = "usage:write"
NOT_OURS: Final[Answer] = (HTTPStatus.BAD_REQUEST, "text/plain", b"Bad Request", [])
HERE_BYTES: Final = 512 * 1024
"""Largest body read in the thread of the loop: two threads that alternate at Python's one lock both take longer."""
META: Final = {
    b"authorization": "HTTP_AUTHORIZATION", b"content-encoding": "HTTP_CONTENT_ENCODING", b"host": "HTTP_HOST",
    b"content-length": "CONTENT_LENGTH", b"content-type": "CONTENT_TYPE", b"forwarded": "HTTP_FORWARDED",
}  # fmt: skip
_ASKING: Final = {
    **{header.lower().encode(): name for name, (_, header) in QUESTION_HEADERS.items()},
    b"x-suanpan-authorization": GATEWAY_AUTHORIZATION,
}
"""Headers of `budgets/authorize`, and their names in a request's META."""
_SAFE: Final = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class ClientGone(Exception):
    """Error: the client left, so that no answer is needed."""


class GatewayRequests:
    """ASGI application for requests with a token to these addresses; `start` and `stop` run with the server."""

    _writer: LoopWriter
    _asking: ThreadPoolExecutor
    _checking: ThreadPoolExecutor

    @staticmethod
    def takes(scope: dict[str, Any], headers: Headers) -> bool:
        """Return True if this request is answered here; requests without a token, such as a session's, are for Django."""
        method, path = scope["method"], scope["path"]
        if b"x-suanpan-authorization" in headers and is_authorization(path):
            return is_question(method, path)
        return b"authorization" in headers and ((path == PATH and method == "POST") or is_question(method, path))

    async def __call__(self, scope: dict[str, Any], headers: Headers, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, meta_of(scope, headers), receive)
        except ClientGone:
            return None
        except Exception as error:  # noqa: BLE001 - the edge: after any error the client gets an answer
            answer = failed_answer(error)
        return await send_answer(send, answer, closing=b"expect" in headers)

    def start(self) -> None:
        """Start the writer and the threads, in the loop of the server."""
        self._writer = LoopWriter()
        self._asking, self._checking = ThreadPoolExecutor(1, "tokens"), ThreadPoolExecutor(1, "budgets")

    async def stop(self) -> None:
        """Stop after every report that was read is answered."""
        await self._writer.stop()
        for thread in (self._asking, self._checking):
            # a connection of Django belongs to the thread that opened it
            thread.submit(connections.close_all)
            await asyncio.to_thread(thread.shutdown)

    async def _answer(self, scope: dict[str, Any], meta: Meta, receive: Receive) -> Answer:
        """Answer a request.  Raises errors that `failed_answer` converts."""
        if not is_ours(meta.get("HTTP_HOST", "")):
            return NOT_OURS
        if scope["path"] == PATH:
            return await self._report(meta, receive)
        return await self._budget(scope, meta, receive)

    async def _report(self, meta: Meta, receive: Receive) -> Answer:
        """Take a report. The body is read only after the token is known, and only bytes that arrive are counted."""
        reporter, limit = _reporter(await self._token(meta)), settings.INGEST_MAX_BYTES
        declared_bytes(meta, limit)
        with gate.admit(0) as admitted:
            body = await _body(receive, admitted, limit)
            if len(body) <= HERE_BYTES and "HTTP_CONTENT_ENCODING" not in meta:
                batch = report_read_now(unpacked_body(meta, body, admitted, RECORD_BODIES), reporter)
            else:
                batch = await asyncio.to_thread(_read_apart, meta, body, admitted, reporter)
            return _taken(await self._writer.commits.submit(batch))

    async def _token(self, meta: Mapping[str, Any]) -> ApiToken | None:
        """Return the token of a request; the database is asked if it was not asked lately, or the address is new here.

        Raises AuthenticationFailed.
        """
        kind, _, presented = meta.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        now = datetime.now(UTC)
        known = api_token_recent(presented=presented.strip(), now=now)
        if known is not None and token_address_is_known(token=known, meta=meta, now=now):
            return known
        return await self._ask(self._asking, token_of, meta)

    async def _budget(self, scope: dict[str, Any], meta: Meta, receive: Receive) -> Answer:
        authorizing = is_authorization(scope["path"])
        if authorizing:
            meta |= _asking_meta(scope)
        token = await self._token(gateway_credentials(meta) if authorizing else meta)
        if token is None:
            raise NotAuthenticated
        if not actor_of_token(token).has(SCOPE):
            raise PermissionDenied(f"this needs the scope {SCOPE}")
        with gate.admit(0) as admitted:  # not read: a body of the gateway's client
            body = b"" if authorizing else await _body(receive, admitted, MOST_BODY)
        query = scope["query_string"].decode("latin-1")
        return await self._ask(self._checking, budget_answer, token, scope["method"], scope["path"], query, body, meta)

    async def _ask(self, thread: ThreadPoolExecutor, question: Callable[..., Any], *arguments: Any) -> Any:
        """Ask the database or Valkey in a thread that may wait."""
        return await asyncio.get_running_loop().run_in_executor(thread, copy_context().run, _asked, question, *arguments)


def meta_of(scope: dict[str, Any], headers: Headers) -> Meta:
    """Return request headers as WSGI META."""
    meta: Meta = {META[name]: value.decode("latin-1") for name, value in headers.items() if name in META}
    if scope.get("client"):
        meta["REMOTE_ADDR"] = scope["client"][0]
    if b"x-forwarded-for" in headers:
        # proxies append headers of the same name: all of them count, not only the first
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        meta["HTTP_X_FORWARDED_FOR"] = b",".join(forwarded).decode("latin-1")
    return meta


def _asking_meta(scope: dict[str, Any]) -> Meta:
    """Return the question in the headers of `budgets/authorize`.  Raises Refused if one is given twice.

    A client that sends a header which its gateway adds as well must not choose the consumer.
    """
    asked: Meta = {}
    for name, value in scope["headers"]:
        if name in _ASKING:
            if _ASKING[name] in asked:
                raise Refused(400, f"{name.decode().title()}: is given twice")
            asked[_ASKING[name]] = value.decode("latin-1")
    return asked


@lru_cache(maxsize=256)
def is_ours(host: str) -> bool:
    """Return True if a request for this host is for us, by Django's rule."""
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def _reporter(token: ApiToken | None) -> Reporter:
    """Return the reporter of a token, cached on the token, which is read from the database about once a second.

    Raises NotAuthenticated without one, PermissionDenied if it may not report.
    """
    if token is None:
        raise NotAuthenticated
    known: Reporter | None = getattr(token, "_reporter", None)
    if known is None:
        actor = actor_of_token(token)
        if not actor.has(REPORTS):
            raise PermissionDenied(f"this needs the scope {REPORTS}")
        limit, estimates = settings.FUTURE_TOLERANCE_SECONDS, settings.ESTIMATES_FROM
        known = Reporter(str(actor), ENDPOINT, actor.source, limit, estimates)
        token._reporter = known  # type: ignore[attr-defined]
    return known


async def next_bytes(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of the body, and True if more follows.  Raises ClientGone."""
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _body(receive: Receive, admitted: Admitted, limit: int) -> bytes:
    """Read the request body.  Raises TooLarge, Busy or ClientGone."""
    parts, more = list[bytes](), True
    while more:
        body, more = await next_bytes(receive)
        if admitted.held + len(body) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes: send smaller batches")
        admitted.grow(len(body))
        parts.append(body)
    return b"".join(parts)


def _read_apart(meta: Meta, body: bytes, admitted: Admitted, reporter: Reporter) -> TokenBatch:
    """Read a large or packed report, in a thread of its own."""
    return report_read(unpacked_body(meta, body, admitted, RECORD_BODIES), reporter)


def _asked(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    finally:
        close_old_connections()


def _taken(outcome: IngestOutcome) -> Answer:
    """Build the answer to a report that is durable."""
    return HTTPStatus.OK, "application/json", msgspec.json.encode(outcome.answer()), []


def _refused(error: APIException | DatabaseError | InterfaceError) -> Answer:
    """Build the answer to a request of which nothing was taken.  Raises `error` if it is a programming error."""
    answer = api_problem(error) if isinstance(error, APIException) else unavailable(error)
    headers = [item for item in answer.items() if item[0] in ("Retry-After", "WWW-Authenticate")]
    return answer.status_code, PROBLEM_JSON, answer.content, headers


def failed_answer(error: Exception) -> Answer:
    """Build the answer to a request that raised; unexpected errors are logged."""
    if isinstance(error, APIException | DatabaseError | InterfaceError):
        with suppress(DatabaseError):  # a programming error is raised again
            return _refused(error)
    logger.error("a request could not be answered", exc_info=error)
    return problem_answer(500, "nothing is acknowledged: the log says why")


async def send_answer(send: Send, answer: Answer, *, closing: bool = False) -> None:
    """Send an answer. `closing`: after an error end the connection, since the client may not send the body it announced."""
    status, kind, body, extra = answer
    has_body = status != HTTPStatus.NO_CONTENT
    head = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *_SAFE] if has_body else [*_SAFE]
    head += [(name.lower().encode(), value.encode("latin-1")) for name, value in extra]
    if closing and status >= 400:
        head.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": int(status), "headers": head})
    await send({"type": "http.response.body", "body": body})
