"""Uvicorn's HTTP connection with more limits: number of connections, time of a request, bytes around a body.

Uvicorn reads no body before the application asks for it. But it waits for a request for ever, keeps a head however long
it is, and adds the trailers of a body to the headers. Without these limits a client stops the process, and needs no token.
It is chosen with `--http billing.api.limited_connection:LimitedConnection`.

An offer of another protocol (`Upgrade: h2c`, which Java's client sends over plain HTTP) is ignored, as RFC 9110, 7.8
asks. The parser would take the bytes after the head for that protocol, and so the body for the next request.
"""

import asyncio
import logging
import resource
from typing import Any, Final

from django.conf import settings
from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from billing.api.joined_writes import JoinedWrites

logger = logging.getLogger(__name__)
CONNECTION: Final = "suanpan.connection"
"""Key of the connection in the scope of a request."""
REQUEST_SECONDS = 60.0
"""Time that a client has for a request, head and body, at least; at most twice as long."""
UNREAD_SECONDS = 60.0
"""Time that sent bytes may wait to be read."""
MOST_HEAD: Final = 64 * 1024
"""Bytes of a request before its body."""
FRAMING: Final = 8
"""Bytes that a client may send per byte of the body: chunks of a byte each take six."""
OTHER_FILES: Final = 256
"""Open files other than the connections of clients."""
TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 2\r\ncontent-type: text/plain\r\n"
    b"content-length: 27\r\n\r\ntoo many connections: retry"
)


def allow_connections() -> None:
    """Raise the limit of open files to the number of connections, as far as the system allows."""
    number = settings.INGEST_MAX_CONNECTIONS + OTHER_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if most == resource.RLIM_INFINITY else min(number, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if wanted < number:
        logger.warning("%d files may be open, not %d: raise ulimit -n or lower INGEST_MAX_CONNECTIONS", wanted, number)


class LimitedConnection(HttpToolsProtocol):
    """Connection of Uvicorn with limits on number, time and bytes."""

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _answered: RequestResponseCycle | None = None  # `cycle` is the last one that was read
    _came = _body = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = _Parser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as Uvicorn does

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # Uvicorn serves TCP only
        """Refuse a connection beyond INGEST_MAX_CONNECTIONS; open ones are served on."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]  # all of it that Uvicorn uses
        if len(self.connections) > settings.INGEST_MAX_CONNECTIONS:
            self.transport.write(TOO_MANY)
            self.transport.close()
        else:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self._look, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and tell the running request that the client left."""
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def is_gone(self) -> bool:
        """Return True if the client gets nothing that is sent from now on."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """End the connection at once, whatever waits to be read."""
        if self._answered is not None:
            self._answered.disconnected = True
        self.transport.abort()

    def pause_writing(self) -> None:
        """Start the timer for unread bytes: the client reads more slowly than we write, or nothing."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.cut)

    def resume_writing(self) -> None:
        """Stop the timer for unread bytes."""
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _look(self, before: Any) -> None:
        """Close a connection without a whole request since the last call; Uvicorn closes idle ones itself."""
        is_whole = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if is_whole or self.cycle is not before or self.timeout_keep_alive_task is not None:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self._look, self.cycle)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Feed bytes of one or more requests, within the limit around the body."""
        self._came += len(data)
        super().data_received(data)
        if self._came > MOST_HEAD + FRAMING * self._body and not self.transport.is_closing():
            # such as chunk extensions or trailers without end, which no limit of Uvicorn stops
            self.send_400_response("There is more around the body than any request needs.")

    def is_offer(self) -> bool:
        """Return True if the head just read offers another protocol."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def head_without_offer(self) -> bytes:
        """Return the head just read, without its header `Upgrade`."""
        line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *headers, b"", b""])

    def on_headers_complete(self) -> None:
        """Start the request with a copy of its headers: trailers are no headers. After an offer the head is read again."""
        if self.is_offer():
            return
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self.scope["headers"] = self.headers.copy()

    def on_body(self, body: bytes) -> None:
        """Count and pass on a part of the body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; following bytes belong to the next one."""
        if self.is_offer():
            return
        self._came = self._body = 0
        super().on_message_complete()


class _Parser(HttpRequestParser):
    """Uvicorn's parser of requests, which reads on after an offer of another protocol."""

    def __init__(self, connection: LimitedConnection) -> None:
        super().__init__(connection)
        self._connection = connection

    def feed_data(self, data: Any) -> None:
        """Parse bytes of one or more requests."""
        left = memoryview(data)
        while True:
            try:
                return super().feed_data(left)
            except HttpParserUpgrade as offer:
                if not self._connection.is_offer():
                    raise
                left = left[offer.args[0] :]
                super().feed_data(self._connection.head_without_offer())
