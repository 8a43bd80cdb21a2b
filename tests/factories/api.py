"""Callers of the API, and the shape of its errors."""

import json
import secrets
from collections.abc import Callable
from typing import Any

from django.test import Client

from billing.tenancy.models import Team
from billing.tenancy.tokens import api_token_create


def bearer(presented: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {presented}"}


def program(*scopes: str, team: str = "", **facts: Any) -> Client:
    """A program that shows a new token with these scopes, of one team or of all."""
    bound = Team.objects.get(code=team) if team else None
    name = f"{'-'.join(scopes)}-{secrets.token_hex(4)}"
    return Client(headers=bearer(api_token_create(name=name, scopes=list(scopes), actor="tests", team=bound, **facts)[1]))


def gateway(**facts: Any) -> Callable[..., Any]:
    """Sends a body to an endpoint of the API as a gateway does, with a token that may report."""
    client = program("usage:write", **facts)

    def send(endpoint: str, body: object, kind: str = "application/json", **headers: str) -> Any:
        raw = body if isinstance(body, bytes | str) else json.dumps(body)
        return client.post(f"/api/v1/{endpoint}", raw, content_type=kind, headers=headers)

    return send


def problem(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, which has the shape of RFC 9457 whatever went wrong."""
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    fields: dict[str, Any] = json.loads(answer.content)
    assert fields.keys() >= {"type", "title", "status", "detail"}
    assert fields["status"] == status
    return fields
