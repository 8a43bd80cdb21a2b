"""Real local receivers of alerts: a webhook over HTTP and a mail server over SMTP, each of which can be made to fail."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """Keeps every message that it took; while `failing` it answers 500."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.refused = 0
        self.failing = False
        self.port = 0

    @property
    def url(self) -> str:
        """Its Apprise address, with a path that must stay secret."""
        return f"json://127.0.0.1:{self.port}/secret-path-of-the-hook"

    @property
    def texts(self) -> list[str]:
        """Title and text of each message."""
        return [f"{message['title']}\n{message['message']}" for message in self.messages]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A webhook on a free port of loopback."""
    state = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if state.failing:
                state.refused += 1
            else:
                state.messages.append(json.loads(body))
            self.send_response(500 if state.failing else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with _serving(server):
        state.port = server.server_address[1]
        yield state


class MailServer:
    """Keeps every mail that it took; while `failing` it refuses the recipient."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, Message]] = []
        self.failing = False
        self.refusal = "451 later"
        self.port = 0

    @property
    def url(self) -> str:
        """For ALERT_MAIL_URL."""
        return f"mailto://127.0.0.1:{self.port}?from=suanpan@example.com&mode=insecure"

    @property
    def texts(self) -> list[str]:
        """Subject and text of each mail."""
        return [f"{make_header(decode_header(mail['Subject']))}\n{_text(mail)}" for _, mail in self.mails]


def _text(mail: Message) -> str:
    part = next(part for part in mail.walk() if part.get_content_type() == "text/plain")
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """A mail server on a free port of loopback that speaks as much SMTP as a client needs."""
    state = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 ready")
            recipient = ""
            while line := self.rfile.readline():
                verb = line.split(b":")[0].split()[0].upper()
                if verb == b"QUIT":
                    self._say("221 bye")
                    return
                if verb == b"DATA":
                    self._say("354 go on")
                    state.mails.append((recipient, message_from_bytes(self._data())))
                if verb == b"RCPT":
                    recipient = line.split(b"<")[1].split(b">")[0].decode()
                    if state.failing:
                        self._say(state.refusal)
                        continue
                self._say("250 ok")

        def _data(self) -> bytes:
            lines: list[bytes] = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line[1:] if line.startswith(b"..") else line)
            return b"".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with _serving(server):
        state.port = server.server_address[1]
        yield state


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
