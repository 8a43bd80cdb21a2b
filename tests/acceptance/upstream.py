"""A stand-in for a model server: it answers as OpenAI does and counts by arithmetic, so that everybody knows the truth.

The number n in the last message decides: 100 + n input tokens, n % 64 of them cached, 10 + n % 7 output tokens, n % 5 of
them reasoning. The model `slow` streams for a minute, `broken` fails, `embed` embeds.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def usage_of(number: int) -> dict[str, Any]:
    """The usage that the answer to message `number` reports."""
    given, produced = 100 + number, 10 + number % 7
    return {
        "prompt_tokens": given, "completion_tokens": produced, "total_tokens": given + produced,
        "prompt_tokens_details": {"cached_tokens": number % 64},
        "completion_tokens_details": {"reasoning_tokens": number % 5},
    }  # fmt: skip


class Upstream(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface until closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._answer(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, body: dict[str, Any]) -> None:
        if body["model"] == "broken":
            self._json(500, {"error": {"message": "broken on purpose", "type": "server_error", "code": "500"}})
        elif self.path.endswith("/embeddings"):
            number = int(body["input"][0] if isinstance(body["input"], list) else body["input"])
            counts = {"prompt_tokens": 100 + number, "total_tokens": 100 + number}
            self._json(200, {"object": "list", "model": "embed", "usage": counts,
                             "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]})  # fmt: skip
        else:
            number = int(str(body["messages"][-1]["content"]).split()[-1])
            if body.get("stream"):
                self._stream(body, number)
            else:
                message = {"role": "assistant", "content": f"answer {number}"}
                self._json(200, {**_head(number, "chat.completion"), "usage": usage_of(number),
                                 "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})  # fmt: skip

    def _stream(self, body: dict[str, Any], number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for part in range(600 if body["model"] == "slow" else 3):
            delta = {"role": "assistant", "content": f"part {part} "}
            self._event(number, [{"index": 0, "delta": delta, "finish_reason": None}])
            time.sleep(0.1 if body["model"] == "slow" else 0.005)
        self._event(number, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event(number, [], usage=usage_of(number))
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, number: int, choices: list[Any], **more: Any) -> None:
        chunk = {**_head(number, "chat.completion.chunk"), "choices": choices, **more}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def _head(number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": "upstream"}
