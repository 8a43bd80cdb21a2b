"""Somebody who changes prices through the API."""

import json
from typing import Any

from django.test import Client

from tests import factories

START = "2099-01-01T00:00:00+08:00"
BODY: dict[str, Any] = {
    "name": "2099-01", "valid_from": START, "reason": "new cards",
    "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.5000"}],
    "tokens": [{"model": "llama-3-8b", "input": "2.5", "output": "10"}],
}  # fmt: skip


class Caller:
    """Speaks JSON to the API as one token or person."""

    def __init__(self, client: Client, headers: dict[str, str] | None = None) -> None:
        self.client, self.headers = client, headers

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, f"/api/v1/{path}", content, content_type="application/json", headers=self.headers
        )


def signed_in(name: str, *roles: str) -> Caller:
    client = Client()
    client.force_login(factories.person(name, *roles))
    return Caller(client)
