"""HTTP servers of tests, on a free port of loopback: each answers as its class says, and keeps what a test asks for."""

import gzip
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S", bound=socketserver.BaseServer)


class Request(NamedTuple):
    """What came; the body is unpacked."""

    path: str
    body: bytes
    headers: Mapping[str, str]


class HttpServer(ThreadingHTTPServer):
    """Answers GET and POST with `answer`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, request: Request) -> tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]:
        """Status, body and further headers of the answer."""
        raise NotImplementedError


def acknowledgement(body: bytes, **counts: Any) -> bytes:
    """What the platform answers when it takes every record of a body; `counts` says what else became of some."""
    sent = json.loads(body)
    records = sent if isinstance(sent, list) else sent.get("allocations", sent.get("nodes"))
    others = {"duplicates": 0, "conflicts": 0, "rejected": [], **counts}
    known = others["duplicates"] + others["conflicts"] + len(others["rejected"]) + others.get("pending", 0)
    return json.dumps({"accepted": len(records) - known, **others}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        status, answer, *headers = self.server.answer(Request(self.path, body, dict(self.headers)))
        self.send_response(status)
        for name, value in headers[0].items() if headers else ():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serving(server: S) -> Iterator[S]:
    """The server at work until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
