"""A stand-in for a model server: it answers as OpenAI does and counts by arithmetic, so that everybody knows the truth.

The last "number n" in the request decides: 100 + n input tokens, n % 64 of them cached, 10 + n % 7 output tokens, n % 5 of
them reasoning; embeddings and reranks have input alone. The model `slow` streams for a minute, `broken` fails, and a
stream of `breaking` ends after its first chunk. Chats are of the tier `flex` for each fifth number.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NUMBER = re.compile(r"number (\d+)")


def usage_of(number: int) -> dict[str, Any]:
    """The usage that the answer to message `number` reports."""
    given, produced = 100 + number, 10 + number % 7
    return {
        "prompt_tokens": given, "completion_tokens": produced, "total_tokens": given + produced,
        "prompt_tokens_details": {"cached_tokens": number % 64},
        "completion_tokens_details": {"reasoning_tokens": number % 5},
    }  # fmt: skip


def input_usage_of(number: int) -> dict[str, Any]:
    """The usage of an embedding or a rerank."""
    return {"prompt_tokens": 100 + number, "total_tokens": 100 + number}


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

    def do_GET(self) -> None:
        """A response that was made before."""
        made = re.search(r"/responses/resp_(\d+)", self.path)
        if made:
            self._respond({}, int(made[1]))
        else:
            self._json(404, {"error": {"message": "not here", "type": "invalid_request_error"}})

    def _answer(self, body: dict[str, Any]) -> None:
        number = int(NUMBER.findall(json.dumps(body))[-1])
        if body["model"] == "broken":
            self._json(500, {"error": {"message": "broken on purpose", "type": "server_error", "code": "500"}})
        elif self.path.endswith("/embeddings"):
            self._json(200, {"object": "list", "model": "embed", "usage": input_usage_of(number),
                             "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]})  # fmt: skip
        elif self.path.endswith("/rerank"):
            self._json(200, {"id": f"rerank-{number}", "model": "rerank", "usage": input_usage_of(number),
                             "results": [{"index": 0, "relevance_score": 0.5, "document": {"text": "a"}}]})  # fmt: skip
        elif self.path.endswith("/responses"):
            self._respond(body, number)
        elif self.path.endswith("/messages"):
            self._message(body, number)
        elif body.get("stream"):
            self._stream(body, number)
        else:
            self._json(200, {**_head(number, self._kind), "usage": usage_of(number),
                             "choices": [self._choice(f"answer {number}", "message", "stop")]})  # fmt: skip

    @property
    def _kind(self) -> str:
        return "chat.completion" if self.path.endswith("/chat/completions") else "text_completion"

    def _choice(self, text: str, member: str, finish_reason: str | None) -> dict[str, Any]:
        """A choice of a chat answer or chunk, or of a text completion, as the path asks for."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason}
        if self._kind == "text_completion":
            return {**choice, "text": text, "logprobs": None}
        return {**choice, member: {"role": "assistant", "content": text}}

    def _message(self, body: dict[str, Any], number: int) -> None:
        usage = usage_of(number)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        counts = {"input_tokens": usage["prompt_tokens"] - cached, "cache_read_input_tokens": cached,
                  "cache_creation_input_tokens": 0, "output_tokens": usage["completion_tokens"]}  # fmt: skip
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "upstream", "stop_sequence": None}
        if not body.get("stream"):
            text = [{"type": "text", "text": f"answer {number}"}]
            self._json(200, {**message, "content": text, "stop_reason": "end_turn", "usage": counts})
            return
        begun = {**message, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
        self._events([
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "answer"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {"output_tokens": counts["output_tokens"]}},
            {"type": "message_stop"},
        ])  # fmt: skip

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
        self._events([{**event, "sequence_number": order} for order, event in enumerate(events)])

    def _events(self, events: list[dict[str, Any]]) -> None:
        self._begin_stream()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _stream(self, body: dict[str, Any], number: int) -> None:
        self._begin_stream()
        for part in range(600 if body["model"] == "slow" else 3):
            self._chunk(number, [self._choice(f"part {part} ", "delta", None)])
            time.sleep(0.1 if body["model"] == "slow" else 0.005)
            if body["model"] == "breaking":
                return
        self._chunk(number, [self._choice("", "delta", "stop")])
        if (body.get("stream_options") or {}).get("include_usage"):
            self._chunk(number, [], usage=usage_of(number))
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, number: int, choices: list[Any], **more: Any) -> None:
        kind = "chat.completion.chunk" if self._kind == "chat.completion" else self._kind
        self.wfile.write(b"data: " + json.dumps({**_head(number, kind), "choices": choices, **more}).encode() + b"\n\n")
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


def tier_of(number: int) -> str:
    """The service tier that the answer to message `number` states."""
    return "default" if number % 5 else "flex"


def _head(number: int, kind: str) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": "upstream"}
    return head if kind == "text_completion" else {**head, "service_tier": tier_of(number)}
