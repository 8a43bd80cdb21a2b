"""The least that Uvicorn serves with our connection."""

from typing import Any

import django

django.setup()

from billing.api.report_connection import KnownHead, Request, lifespan  # noqa: E402 - Django has to be set up first


class Empty:
    """Answers {} to whatever it is asked: the raw limit of the server and of who asks."""

    most_bytes = 1024

    def __init__(self) -> None:
        self.heads = dict[bytes, KnownHead]()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await lifespan(self, scope, receive, send)

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def crowded(self, connections: int) -> None: ...

    def opened(self, request: Request) -> None: ...

    def grown(self, request: Request) -> None: ...

    def closed(self, request: Request) -> None: ...

    def take(self, request: Request) -> None:
        request.connection.answer(request, (200, "application/json", b"{}", []))


application = Empty()
