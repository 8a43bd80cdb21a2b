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
        elif self.path.endswith("/responses"):
            self._respond(body, int(str(body["input"]).replace("'", " ").replace("}", " ").replace("]", " ").split()[-1]))
        else:
            number = int(str(body["messages"][-1]["content"]).split()[-1])
            if body.get("stream"):
                self._stream(body, number)
            else:
                message = {"role": "assistant", "content": f"answer {number}"}
                self._json(200, {**_head(number, "chat.completion"), "usage": usage_of(number),
                                 "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})  # fmt: skip

    def _respond(self, body: dict[str, Any], number: int) -> None:
        usage = usage_of(number)
        text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
        item = {"id": "msg", "type": "message", "status": "completed", "role": "assistant", "content": [text]}
        response = {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "upstream", "status": "completed",
            "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0, "output": [item],
            "usage": {"input_tokens": usage["prompt_tokens"], "input_tokens_details": usage["prompt_tokens_details"],
                      "output_tokens": usage["completion_tokens"], "total_tokens": usage["total_tokens"],
                      "output_tokens_details": usage["completion_tokens_details"]},
        }  # fmt: skip
        if not body.get("stream"):
            self._json(200, response)
            return
        place = {"output_index": 0}
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {**place, "type": "response.output_item.added", "item": {**item, "content": [], "status": "in_progress"}},
            {**place, "type": "response.output_text.delta", "item_id": "msg", "content_index": 0, "delta": "answer"},
            {**place, "type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": response},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for order, event in enumerate(events):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': order})}\n\n".encode())
        self.close_connection = True

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
