"""HTTP/1.1 as the receiver of reports and the budget check speak it: requests are read with httptools, answered in order.

It is what Uvicorn's server makes for each connection (`--http billing.api.report_connection:ReportConnection`), instead of
its own, which makes the messages of ASGI and a task of each request: for a single record that costs more than to store it.
The server still listens, ends and tells the time; the receiver is what the application left in the state of its lifespan.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools

from billing.api.admission import Admitted
from billing.api.bodies import Answer

MOST_HEAD: Final = 64 * 1024
"""Bytes of a request before its body."""
MOST_WAITING: Final = 16
"""Requests that a client may send ahead of their answers."""
IDLE_SECONDS: Final = 75
"""How long a connection stays open of which nothing is heard, between requests or within one."""
LINGER_SECONDS: Final = 2
"""How long what a client still sends is thrown away after an answer that ends the connection: else it might not see it."""
END_OF_HEAD: Final = b"\r\n\r\n"
KNOWN_BYTES: Final = 16 * 1024
"""How large a request is at most whose head is looked for among those that were read before."""
MOST_HEADS: Final = 4096
KNOWN_HEAD_BYTES: Final = 2048
"""How many heads are remembered, and of how many bytes at most."""
META: Final = {
    b"authorization": "HTTP_AUTHORIZATION", b"content-encoding": "HTTP_CONTENT_ENCODING", b"host": "HTTP_HOST",
    b"content-length": "CONTENT_LENGTH", b"content-type": "CONTENT_TYPE", b"expect": "HTTP_EXPECT",
}  # fmt: skip
"""What is kept of the head, under the names that the doors of the web process know."""
_AS_WRITTEN: Final = META | {name.title(): known for name, known in META.items()}
_SAFE: Final = b"\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store"
_GOOD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json" + _SAFE + b"\r\nContent-Length: %d\r\n%b\r\n%b"


Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Request:
    """One request; its body is all there when the receiver takes it. `refusal`: its answer, if it was known before.

    `is_plain`: the receiver found nothing in its head that it would look at again where another has the same.
    """

    __slots__ = (
        "META", "_parts", "admitted", "close", "connection", "is_plain", "method", "path", "refusal", "reporter", "size",
    )  # fmt: skip

    def __init__(self, connection: "ReportConnection") -> None:
        self.connection = connection
        self.META = dict[str, Any]()
        self.method, self.path = b"", b""
        self.close = self.is_plain = False
        self.admitted: Admitted | None = None
        self.refusal: Answer | None = None
        self.reporter: Any = None
        self._parts = list[bytes]()
        self.size = 0

    def add(self, part: bytes) -> None:
        """The next bytes of the body."""
        self._parts.append(part)
        self.size += len(part)

    def drop(self) -> None:
        """Forget the body."""
        self._parts = []

    def read(self, size: int, /) -> bytes:
        """At most so many bytes of the body, from its beginning."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return body if len(body) <= size else body[:size]


class KnownHead:
    """The head of a plain request that was read before, and how long its body is."""

    __slots__ = ("_meta", "_method", "_path", "size")

    def __init__(self, request: Request) -> None:
        self._meta, self._method, self._path, self.size = request.META, request.method, request.path, request.size

    def request(self, connection: "ReportConnection", body: bytes) -> Request:
        """One with the same head and another body."""
        request = Request(connection)
        request.META, request.method, request.path, request.is_plain = self._meta, self._method, self._path, True
        request.add(body)
        return request


class Receiver(Protocol):
    """What takes requests. Each is answered once, with `request.connection.answer`, in the thread of the loop.

    `most_bytes`: what one request may take on the wire, with all that is around its body. `heads`: those that were read
    before, byte for byte.
    """

    heads: dict[bytes, KnownHead]

    @property
    def most_bytes(self) -> int: ...

    def crowded(self, connections: int) -> Answer | None:
        """The answer to who makes them so many connections; None where there is room."""

    def opened(self, request: Request) -> None:
        """The head of a request is here; where it was read before also the body, which has a `size` then. A `refusal` set
        now is sent once the body came, which is thrown away.
        """

    def grown(self, request: Request) -> None:
        """More of its body is here; may set a `refusal`."""

    def take(self, request: Request) -> None:
        """The whole of a request is here."""

    def closed(self, request: Request) -> None:
        """The request was answered, or its connection was lost before it was taken."""


class Lives(Protocol):
    """What begins and ends with the server."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


async def lifespan(receiver: Lives, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """ASGI as far as it goes here: the application begins and ends; requests come from connections.

    Raises RuntimeError for a request: the server was started without `--http`.
    """
    if scope["type"] != "lifespan":
        raise RuntimeError("serve this application with --http billing.api.report_connection:ReportConnection")
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            receiver.start()
            scope["state"]["receiver"] = receiver
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await receiver.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return


class ReportConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._state = server_state
        self._receiver: Receiver = app_state["receiver"]
        self._loop = _loop or asyncio.get_event_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._request: Request | None = None
        self._taken: Request | None = None
        self._waiting = deque[Request]()
        self._came, self._in_head = 0, True
        self._new: tuple[bytes, int] | None = None
        self._fresh = self._ending = self._deaf = self._busy = self._unread = self._paused = False
        self._since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = transport
        self._state.connections.add(self)
        answer = self._receiver.crowded(len(self._state.connections))
        if answer is None:
            self._loop.call_later(IDLE_SECONDS, self._look)
        else:
            self._leave(answer)

    def _look(self) -> None:
        """Close a connection of which nothing was heard for long."""
        if self._transport is None:
            return
        left = self._since + IDLE_SECONDS - self._loop.time()
        if left <= 0 and self._taken is None:
            self._transport.close()
        else:
            self._loop.call_later(max(left, 1), self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left; what is being written is written all the same."""
        self._state.connections.discard(self)
        self._transport = None
        self._forget()

    def pause_writing(self) -> None:
        """The client does not read its answers: nothing more is read of it."""
        self._unread = True
        self._flow()

    def resume_writing(self) -> None:
        """It does again."""
        self._unread = False
        self._flow()

    def _flow(self) -> None:
        """Read on, or do not."""
        stops = self._unread or len(self._waiting) >= MOST_WAITING
        if stops != self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = stops
            (self._transport.pause_reading if stops else self._transport.resume_reading)()

    def data_received(self, data: bytes) -> None:
        """Bytes of one or more requests."""
        if self._deaf:
            return
        self._fresh, self._since = False, self._loop.time()
        if self._request is None and self._in_head and not self._came and len(data) <= KNOWN_BYTES:
            head, _, body = data.partition(END_OF_HEAD)
            known = self._receiver.heads.get(head)
            if known is not None and known.size == len(body):
                return self._hear_known(known.request(self, body))
            self._new = head, len(body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._deaf = True  # what follows is another protocol; the request was answered
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP request")
        self._came += 0 if self._fresh else len(data)
        if self._came > (MOST_HEAD if self._in_head else self._receiver.most_bytes) and not self._deaf:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there is more around the body than any request needs")

    def _hear_known(self, request: Request) -> None:
        """All of a request whose head was read before. A client says the same again and again, and reading that costs more
        than reading one record; the parser, which is between two requests, need not know.
        """
        self._receiver.opened(request)
        if request.refusal is not None:
            request.drop()
        self._heard(request)

    def _learn(self, request: Request) -> None:
        """Remember the head of who may report, if its request came at once and it says of the body only how long it is."""
        new, self._new = self._new, None
        if new is None or request.close or not request.is_plain or request.reporter is None:
            return
        head, size = new
        if len(head) <= KNOWN_HEAD_BYTES and size == request.size and request.META.get("CONTENT_LENGTH") == str(size):
            heads = self._receiver.heads
            if len(heads) >= MOST_HEADS:
                heads.clear()
            heads[head] = KnownHead(request)

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._deaf:
            return
        self._request = Request(self)
        self._came, self._in_head, self._fresh = 0, True, True

    def on_url(self, url: bytes) -> None:
        """Some of its address."""
        if self._request:
            self._request.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        known = _AS_WRITTEN.get(name) or META.get(name.lower())
        if known and self._request:
            self._request.META[known] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body is next."""
        self._in_head = False
        request = self._request
        if request is None:
            return
        request.method = self._parser.get_method()
        request.close = not self._parser.should_keep_alive()
        if self._parser.should_upgrade():
            request.close = True
            request.refusal = (HTTPStatus.BAD_REQUEST, "text/plain", b"this door speaks HTTP/1.1 only: send no Upgrade", [])
            return
        self._receiver.opened(request)
        if request.META.get("HTTP_EXPECT", "").lower() == "100-continue":
            if request.refusal is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                request.close = True
                self._heard(request)

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        request = self._request
        if request is None:
            return
        request.add(body)
        if request.refusal is None:
            self._receiver.grown(request)
        if request.refusal is not None:
            request.drop()

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._came, self._in_head, self._fresh = 0, True, True
        if self._request is not None:
            self._learn(self._request)
            self._heard(self._request)

    def _heard(self, request: Request) -> None:
        self._request = None
        if self._taken is None and not self._busy:
            self._take(request)
        else:
            self._waiting.append(request)
            self._flow()

    def _take(self, request: Request) -> None:
        self._taken = request
        if request.refusal is None:
            self._receiver.take(request)
        else:
            self.answer(request, request.refusal)

    def _take_next(self) -> None:
        """Take what waits, unless one is being taken; those that are answered at once follow each other here."""
        if self._busy:
            return
        self._busy = True
        while self._waiting and self._taken is None:
            self._take(self._waiting.popleft())
        self._busy = False
        self._flow()

    def answer(self, request: Request, answer: Answer) -> None:
        """Send the answer, unless the client left; then its next request is taken."""
        self._receiver.closed(request)
        self._taken = None
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        ends = request.close or self._ending
        written = self._written(answer, ends=ends)
        transport.write(written[: -len(answer[2])] if request.method == b"HEAD" and answer[2] else written)
        self._since = self._loop.time()
        if ends:
            self._end()
        elif self._waiting:
            self._take_next()

    def _written(self, answer: Answer, *, ends: bool) -> bytes:
        status, kind, body, extra = answer
        common = _lines(tuple(self._state.default_headers))
        if ends:
            common += b"Connection: close\r\n"
        if status == HTTPStatus.OK and not extra and kind == "application/json":
            return _good(body, common)
        head = f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}".encode() + _SAFE
        head += b"".join(f"\r\n{name}: {value}".encode("latin-1") for name, value in extra)
        if status == HTTPStatus.NO_CONTENT:
            return head + b"\r\n%b\r\n" % common
        return head + b"\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (kind.encode(), len(body), common, body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer to what is no request, after which nothing of this connection can be understood."""
        self._forget()
        if self._taken is not None:
            self._ending = True  # with the answer that is due
        elif self._transport is not None:
            self._leave((status, "text/plain", why.encode(), []))

    def _leave(self, answer: Answer) -> None:
        """Answer whatever is asked, and end."""
        self._transport.write(self._written(answer, ends=True))
        self._end()

    def _end(self) -> None:
        """No more is said on this connection; what comes is thrown away until the client has seen the answer."""
        self._forget()
        self._transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._close)

    def _forget(self) -> None:
        """Hear no more, and drop what was heard but not taken."""
        self._deaf = True
        for request in (*self._waiting, *([self._request] if self._request else [])):
            self._receiver.closed(request)
        self._waiting.clear()
        self._request = None

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def shutdown(self) -> None:
        """The server ends: what was heard is answered, nothing more is read."""
        self._ending = True
        if self._taken is None and self._transport is not None:
            self._transport.close()


@lru_cache(maxsize=64)
def _good(body: bytes, common: bytes) -> bytes:
    """Most answers to reports within a second are one of a few."""
    return _GOOD % (len(body), common, body)


@lru_cache(maxsize=4)
def _lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Those of the server, among them the time of day, which is the same for a second."""
    return b"".join(b"%b: %b\r\n" % pair for pair in headers)
