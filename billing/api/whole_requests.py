"""WSGI application behind an ASGI server: it gets a request when it is whole, so that no thread waits for a client.

The server reads and writes in one thread, whatever clients do; `limited_connection` limits their number and the time for a
request. Pages and endpoints have their threads, which the networks of clients share (`shared_threads`); static files,
`/readyz` and `/metrics` have others; `/healthz` and gateway requests (`gateway_requests`) need none.
A thread ends when its answer is made, and the loop sends it (`handed_over`).
"""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.db import close_old_connections
from django.http import parse_cookie
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.exceptions import AuthenticationFailed

from billing.api.admission import Admitted, gate
from billing.api.authentication import token_of
from billing.api.bodies import Answer
from billing.api.gateway_requests import (
    ClientGone,
    GatewayRequests,
    Meta,
    Receive,
    Send,
    failed_answer,
    is_ours,
    meta_of,
    next_bytes,
    send_answer,
)
from billing.api.handed_over import Handover, Room
from billing.api.limited_connection import CONNECTION, LimitedConnection
from billing.api.metrics import Scrapes, is_served_to
from billing.api.request_metrics import CountedAnswer
from billing.api.shared_threads import SharedThreads
from billing.runtime.request_id import request_id_begin
from billing.tenancy.token_addresses import client_network

FROM_ANYBODY: Final = 64 * 1024
"""Bytes of a body that are read before its sender is authenticated; every form that needs no session is smaller."""
PIECE: Final = 256 * 1024
"""Bytes of an answer that a thread hands over at a time."""
PIECE_SECONDS: Final = 60
"""Time that a client has for a piece, while the rest of the answer waits for it in a thread."""
FILE_THREADS: Final = 2
"""Threads that open static files, so that pages have theirs for themselves."""
READING: Final = ("GET", "HEAD")
"""Methods that change nothing: nobody needs the answer once the client has left."""
HEALTHY: Final[Answer] = (200, "application/json", b'{"status":"ok"}', [])


class Unread(io.RawIOBase):
    """Body of a stranger that is too large to be read."""

    def read(self, size: int = -1, /) -> bytes:
        """Raise OSError, which Django treats as a body that did not arrive."""
        raise OSError(f"of more than {FROM_ANYBODY} bytes only those of a session or a token are read")


class WholeRequests:
    """ASGI application that runs a WSGI application in threads, once a request is whole."""

    def __init__(self, application: Callable[..., Iterable[bytes]], threads: int) -> None:
        self._application, self._gateways = application, GatewayRequests()
        self._pages, self._files = SharedThreads(threads, "pages"), SharedThreads(FILE_THREADS, "files")
        self._probes, self._scrapes = SharedThreads(1, "probes"), Scrapes()
        self._room = Room(threads // 2)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # the first of two equal names counts
        identifier = request_id_begin(headers.get(b"x-request-id", b"").decode("latin-1"))
        send = CountedAnswer(scope["path"], identifier, send)
        if scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            return await send_answer(send, HEALTHY)
        if self._gateways.takes(scope, headers):
            return await self._gateways(scope, headers, receive, send)
        try:
            if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD") and _may_scrape(meta_of(scope, headers)):
                return await send_answer(send, (200, CONTENT_TYPE_LATEST, await self._scrapes.latest(), []))
            await self._answer(scope, receive, send)
        except ClientGone:
            scope[CONNECTION].cut()  # without it Uvicorn logs an unfinished answer
        except Exception as error:  # noqa: BLE001 - the edge: after any error the client gets an answer
            failed = failed_answer(error)
            if send.is_begun:  # the end of the connection tells the client that the answer is incomplete
                scope[CONNECTION].cut()
            else:
                await send_answer(send, failed)
        return None

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server."""
        await receive()
        self._gateways.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._gateways.stop()
        await self._scrapes.stop()
        for threads in (self._pages, self._files, self._probes):
            await threads.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Let the application answer.  Raises ClientGone, Busy, or what the application raises."""
        environ, connection = environ_of(scope), scope[CONNECTION]
        network = client_network(environ)
        with ExitStack() as counted:  # the body, until a thread takes it: the application counts its own
            body = await self._body(environ, network, receive, counted.enter_context(gate.admit(0)))
            environ["wsgi.input"] = body
            if isinstance(body, io.BytesIO):
                environ.setdefault("CONTENT_LENGTH", str(len(body.getbuffer())))
            answer = Handover(self._room, PIECE_SECONDS, connection.cut)
            self._threads(scope["path"]).submit(network, self._serve, environ, counted.pop_all(), answer, connection)
        await answer.send_to(send, connection.is_gone)

    def _threads(self, path: str) -> SharedThreads:
        if path == "/readyz":
            return self._probes
        return self._files if path.startswith(settings.STATIC_URL) else self._pages

    async def _body(
        self, environ: dict[str, Any], network: str, receive: Receive, admitted: Admitted
    ) -> io.BytesIO | Unread:
        """Read the request body, but at most a byte more than the limit, for which the application refuses it.

        Bytes up to FROM_ANYBODY are not counted.  Raises ClientGone, Busy or DatabaseError.
        """
        parts, size, limit, more = list[bytes](), 0, FROM_ANYBODY, True
        while more:
            part, more = await next_bytes(receive)
            parts.append(part)
            size += len(part)
            if size > FROM_ANYBODY:
                if limit == FROM_ANYBODY:
                    limit = settings.INGEST_MAX_BYTES
                    if not await self._pages.ask(network, _is_known, environ):
                        return Unread()
                admitted.grow(size - admitted.held)
                if size > limit:
                    break
        return io.BytesIO(b"".join(parts))

    def _serve(self, environ: dict[str, Any], counted: ExitStack, answer: Handover, connection: LimitedConnection) -> None:
        """Run the application in a thread and hand its answer over; work after the answer delays nobody."""
        counted.close()
        try:
            if connection.is_gone() and environ["REQUEST_METHOD"] in READING:
                raise ClientGone
            response = self._application(environ, answer.start_response)
            try:
                answer.take(_pieces(response))
            finally:
                if hasattr(response, "close"):
                    response.close()
        except BaseException as error:  # noqa: BLE001 - the loop that waits for it handles it
            answer.fail(error)


def _may_scrape(meta: Meta) -> bool:
    """Return True if metrics are answered at once; Django refuses all other requests for them."""
    return is_ours(meta.get("HTTP_HOST", "")) and is_served_to(meta)


def environ_of(scope: dict[str, Any]) -> dict[str, Any]:
    """Return the head of a request as a WSGI environ (PEP 3333), without names with an underscore: they imitate others."""
    server, client = scope.get("server") or ("localhost", 80), scope.get("client") or ("", 0)
    environ = {
        "REQUEST_METHOD": scope["method"], "SCRIPT_NAME": "", "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"), "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]), "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}", "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0), "wsgi.url_scheme": scope["scheme"], "wsgi.errors": sys.stderr, "wsgi.multithread": True,
        "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    for raw, value in scope["headers"]:
        if b"_" not in raw:
            name = raw.decode("latin-1").upper().replace("-", "_")
            key = name if name in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{name}"
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]}{';' if name == 'COOKIE' else ','}{text}" if key in environ else text
    return environ


def _pieces(response: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in fewer, larger pieces; nothing for an empty response."""
    parts, size = list[bytes](), 0
    for part in response:
        parts.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _is_known(environ: dict[str, Any]) -> bool:
    """Return True if the request has a valid token or session.  Raises DatabaseError."""
    close_old_connections()
    key = parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    sessions = import_module(settings.SESSION_ENGINE)
    try:
        return token_of(environ) is not None or (key is not None and SESSION_KEY in sessions.SessionStore(key))
    except AuthenticationFailed:
        return False
    finally:
        close_old_connections()
