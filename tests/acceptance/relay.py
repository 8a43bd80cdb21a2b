"""What is between the proxy and Suanpan: passes on, or is slow, full or gone, as a network can be."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Relay(ThreadingHTTPServer):
    """Passes what it gets to a port; `delay_s` before it does, `refusing`: 503 to everything, `gone`: hangs up."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.delay_s = 0.0
        self.refusing = False
        self.gone = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Relay

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.gone:
            self.close_connection = True
            return
        time.sleep(self.server.delay_s)
        if self.server.refusing:
            self._say(503, b"busy", {"Retry-After": "1"})
            return
        target = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        try:
            target.request("POST", self.path, body, kept)
            answer = target.getresponse()
            self._say(answer.status, answer.read(), {"Content-Type": answer.getheader("Content-Type") or "text/plain"})
        finally:
            target.close()

    def _say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass
