"""The least that an ASGI server answers: the raw limit of the server and of who asks."""

from typing import Any


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers {} to whatever it is asked."""
    if scope["type"] == "http":
        head = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"{}"})
