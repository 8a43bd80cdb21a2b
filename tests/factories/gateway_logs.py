"""Lines of a gateway's log."""

import json
from typing import Any


def line(number: int, **changed: Any) -> str:
    fields = {"start_time": "2026-10-05T10:00:00Z", "x-request-id": f"r{number}", "consumer": "team-a",
              "response_code": 200, "gen_ai.request.model": "qwen", "gen_ai.usage.input_tokens": number,
              "gen_ai.usage.output_tokens": 1}  # fmt: skip
    return json.dumps({**fields, **changed}) + "\n"


def nameless(number: int) -> str:
    return line(number, **{"x-request-id": None})
