"""Consumer of a Celery worker, which keeps the connection to the broker."""

from functools import partial
from typing import Any, Final

from celery.worker.consumer import Consumer as CeleryConsumer

LOOK_AGAIN_S: Final = 5


class Consumer(CeleryConsumer):
    """Consumer that retries an unreachable broker every few seconds. Celery's own waits longer each time, up to 30 s."""

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once it is established."""
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=LOOK_AGAIN_S)
        return super().ensure_connected(conn)
