"""The part of a Celery worker that keeps its connection to the broker."""

from functools import partial
from typing import Any, Final

from celery.worker.consumer import Consumer as CeleryConsumer

LOOK_AGAIN_S: Final = 5


class Consumer(CeleryConsumer):
    """Looks for a broker that is away every few seconds. Celery's own waits longer each time, at last half a minute."""

    def ensure_connected(self, conn: Any) -> Any:
        """The connection, when there is one."""
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=LOOK_AGAIN_S)
        return super().ensure_connected(conn)
