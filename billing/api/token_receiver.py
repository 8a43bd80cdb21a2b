"""`POST usage/tokens` in a process of its own, for gateways that report each request by itself, thousands in a second.

One thread reads, decodes, writes what waits in one transaction, and answers. It is the same door with the same answers as
that of the web process (`token_door`), which gives every request a thread of its own that waits.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.utils import timezone
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.exceptions import APIException

from billing.api.admission import Busy, gate
from billing.api.authentication import token_of
from billing.api.bodies import RECORD_BODIES, Answer, TooLarge, check_content_type, declared_bytes, problem_answer, read_body
from billing.api.health import database_state
from billing.api.metrics import process_metrics
from billing.api.report_connection import KnownHead, Receive, Request, Send, lifespan
from billing.api.token_door import (
    AT_ONCE_BYTES,
    NOT_OURS,
    PATH,
    is_ours,
    refused,
    report_read,
    report_read_now,
    reporter_of,
    taken,
)
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import GRACE_SECONDS, RECENT_SECONDS
from billing.usage.services import IngestOutcome, Reporter, Result, TokenWriter, tokens_writer
from billing.usage.services.token_batch import TokenBatch
from metering.raw_json import without_mark

logger = logging.getLogger(__name__)
LOOK_EVERY_SECONDS: Final = 1.0
READY_SECONDS: Final = 5.0
"""How long after the database answered a receiver is ready to take reports."""
FRAMING: Final = 8
"""How many bytes a client may send for one of the body: chunks of a byte each take six."""
MOST_BEARERS: Final = 10_000
HERE_BYTES: Final = 512 * 1024
"""What is read in the thread of the loop: of two threads that take turns at Python's one lock, both take longer."""


class _Bearer:
    """Whose token a header holds, and when the database was asked."""

    __slots__ = ("asked", "expires_at", "reporter")

    def __init__(self, token: ApiToken | None) -> None:
        self.reporter, self.asked = reporter_of(token), monotonic()
        self.expires_at = token.expires_at if token else None


class TokenReceiver:
    """The application: as far as ASGI goes it begins and ends; requests come from `ReportConnection`."""

    def __init__(self) -> None:
        self.heads = dict[bytes, KnownHead]()
        self._bearers = dict[str, _Bearer]()
        self._asking = dict[str, asyncio.Future[_Bearer]]()
        self._later = set[asyncio.Task[None]]()
        self._unread = deque[Request]()
        self._database = ThreadPoolExecutor(1, "bearers")
        self._reached = float("-inf")
        self._reaching: asyncio.Future[str] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._looking: asyncio.TimerHandle
        self._writer: TokenWriter[Request]

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await lifespan(self, scope, receive, send)

    def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.get_running_loop()
        self._writer = tokens_writer(self._answer_all)
        self._look()

    async def stop(self) -> None:
        """Write what waits, and end. Asks of who reports end with it."""
        self._looking.cancel()
        await self._writer.stop()
        self._database.submit(connections.close_all)
        await asyncio.to_thread(self._database.shutdown)

    def _look(self) -> None:
        self._answer_all(self._writer.overdue())
        if self._reaching is None:
            self._reaching = self._loop.run_in_executor(self._database, _reach)
            self._reaching.add_done_callback(self._reach_ended)
        self._looking = self._loop.call_later(LOOK_EVERY_SECONDS, self._look)

    def _reach_ended(self, reaching: asyncio.Future[str]) -> None:
        self._reaching = None
        if not reaching.cancelled() and reaching.exception() is None and reaching.result() == "ok":
            self._reached = monotonic()

    @property
    def most_bytes(self) -> int:
        """What one request may take on the wire."""
        return int(settings.INGEST_MAX_BYTES) * FRAMING

    def crowded(self, connections: int) -> Answer | None:
        """The answer to a client for whom there is no room."""
        if connections <= settings.INGEST_MAX_CONNECTIONS:
            return None
        return refused(Busy(f"{settings.INGEST_MAX_CONNECTIONS} connections are open: come again later"))

    def opened(self, request: Request) -> None:
        """See who comes, and for what, before anything of the body is kept."""
        try:
            if not request.is_plain:
                request.refusal = self._elsewhere(request)
                request.is_plain = request.refusal is None and _is_plain(request)
            if request.refusal is None:
                request.reporter = self._recent(request)
                request.admitted = gate.admit(request.size or declared_bytes(request))
        except APIException as error:
            request.refusal = refused(error)
            request.close |= isinstance(error, TooLarge)

    def _elsewhere(self, request: Request) -> Answer | None:
        path = request.path.partition(b"?")[0]
        if path == PATH.encode() and request.method == b"POST":
            return None if is_ours(request.META.get("HTTP_HOST", "")) else NOT_OURS
        if path == b"/healthz":
            return 200, "application/json", b'{"status":"ok"}', []
        if path == b"/readyz":
            ready = monotonic() - self._reached < READY_SECONDS
            state = {"status": "ok" if ready else "unavailable", "database": "ok" if ready else "unreachable"}
            return 200 if ready else 503, "application/json", msgspec.json.encode(state), []
        if path == b"/metrics":
            return 200, CONTENT_TYPE_LATEST, process_metrics(), []
        if path == PATH.encode():
            return problem_answer(405, f"{request.method.decode()} is not for this door", ("Allow", "POST"))
        return problem_answer(404, f"no door at {path.decode('latin-1')[:200]} in this process: ask the web process")

    def grown(self, request: Request) -> None:
        """Of a body that named no length, count what came."""
        admitted = request.admitted
        if admitted is None or request.size <= admitted.held:
            return
        try:
            if request.size > settings.INGEST_MAX_BYTES:
                raise TooLarge(f"the body is larger than {settings.INGEST_MAX_BYTES} bytes: send smaller batches")
            admitted.grow(request.size - admitted.held)
        except APIException as error:
            request.refusal = refused(error)

    def closed(self, request: Request) -> None:
        """Give back what was counted in."""
        if request.admitted is not None:
            gate.give_back(request.admitted.held)
            request.admitted = None

    def take(self, request: Request) -> None:
        """Have the report written. It is read here unless it is huge; of many records one by one, so that the database never
        waits longer for what it is to be told next.
        """
        if request.reporter is None or not _is_read_here(request):
            task = self._loop.create_task(self._take_later(request))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        elif request.size < AT_ONCE_BYTES:
            self._take_now(request)
        else:
            self._unread.append(request)
            if len(self._unread) == 1:
                self._loop.call_soon(self._take_next)

    def _take_now(self, request: Request) -> None:
        try:
            self._writer.submit(request, _read(request))
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, the client is told
            request.connection.answer(request, _answer(error))

    def _take_next(self) -> None:
        self._take_now(self._unread[0])
        self._unread.popleft()
        if self._unread:
            self._loop.call_soon(self._take_next)

    async def _take_later(self, request: Request) -> None:
        try:
            if request.reporter is None:
                request.reporter = (await self._ask(request.META)).reporter
            read = _read(request) if _is_read_here(request) else await asyncio.to_thread(_read, request)
            self._writer.submit(request, read)
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, the client is told
            request.connection.answer(request, _answer(error))

    def _recent(self, request: Request) -> Reporter | None:
        """Who reports, if the database was asked lately; it is asked again before that is too long ago to go by."""
        bearer = self._bearers.get(request.META.get("HTTP_AUTHORIZATION", ""))
        if bearer is None or (bearer.expires_at is not None and bearer.expires_at <= timezone.now()):
            return None
        age = monotonic() - bearer.asked
        if age > RECENT_SECONDS:
            self._ask(request.META)
        return bearer.reporter if age <= RECENT_SECONDS + GRACE_SECONDS else None

    def _ask(self, meta: dict[str, Any]) -> asyncio.Future[_Bearer]:
        """Ask the database who reports, once for all who come with the same token meanwhile."""
        header = meta.get("HTTP_AUTHORIZATION", "")
        asked = self._asking.get(header)
        if asked is None:
            asked = self._asking[header] = self._loop.run_in_executor(self._database, _bearer, meta)
            asked.add_done_callback(lambda asked: self._know(header, asked))
        return asked

    def _know(self, header: str, asked: asyncio.Future[_Bearer]) -> None:
        del self._asking[header]
        self._bearers.pop(header, None)
        if asked.cancelled() or asked.exception() is not None:
            return
        if len(self._bearers) >= MOST_BEARERS:
            self._bearers.clear()
        self._bearers[header] = asked.result()

    def _answer_all(self, results: Sequence[tuple[Request, Result]]) -> None:
        for request, result in results:
            request.connection.answer(request, _answer(result))


def _is_plain(request: Request) -> bool:
    """Whether the head of a report, which is for this door, asks for nothing but to read records as they are."""
    meta = request.META
    if "HTTP_CONTENT_ENCODING" in meta or "HTTP_EXPECT" in meta:
        return False
    try:
        check_content_type(request, RECORD_BODIES)
    except APIException:
        return False
    return True


def _is_read_here(request: Request) -> bool:
    """Whether the loop itself reads it; what is packed may be of any size."""
    return request.size <= HERE_BYTES and "HTTP_CONTENT_ENCODING" not in request.META


def _read(request: Request) -> TokenBatch:
    if request.admitted is None:
        raise RuntimeError("a report is read after it was answered")
    if _is_read_here(request):  # and counted in as it came
        if not request.is_plain:
            check_content_type(request, RECORD_BODIES)
        return report_read_now(without_mark(request.read(HERE_BYTES)), request.reporter)
    return report_read(read_body(request, request.admitted, RECORD_BODIES), request.reporter)


def _bearer(meta: dict[str, Any]) -> _Bearer:
    """Ask the database, in the thread that does nothing else.  Raises APIException."""
    close_old_connections()
    try:
        return _Bearer(token_of(meta))
    except (DatabaseError, InterfaceError):
        close_old_connections()
        raise


def _reach() -> str:
    close_old_connections()
    return database_state()


def _answer(result: Result) -> Answer:
    if isinstance(result, IngestOutcome):
        return taken(result)
    if isinstance(result, APIException | DatabaseError | InterfaceError):
        try:
            return refused(result)
        except DatabaseError:
            pass
    logger.error("a report could not be taken", exc_info=result)
    return problem_answer(500, "nothing is acknowledged: the log of the receiver says why")
