"""Callers of the API, and the shape of its errors."""

import json
from typing import Any


def bearer(presented: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {presented}"}


def problem(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, which has the shape of RFC 9457 whatever went wrong."""
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    fields: dict[str, Any] = json.loads(answer.content)
    assert fields.keys() >= {"type", "title", "status", "detail"}
    assert fields["status"] == status
    return fields
