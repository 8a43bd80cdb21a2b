"""An ASGI application served in this process, as `up` serves it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from billing.api.limited_connection import LimitedConnection
from billing.local.process_list import free_port


@contextmanager
def served(application: Any) -> Iterator[int]:
    """The port at which it listens."""
    port = free_port()
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, http=LimitedConnection, loop="uvloop", ws="none", lifespan="on",
        log_level="error", server_header=False, proxy_headers=False, timeout_graceful_shutdown=20, timeout_keep_alive=75,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    yield port
    server.should_exit = True
    thread.join(timeout=30)
    assert not thread.is_alive()


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
