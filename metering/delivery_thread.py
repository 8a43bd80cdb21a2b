"""The thread that takes the spool of an agent to the platform, on a connection of its own."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metering.delivery import Delivery
from metering.spool import Spool, open_state

log = logging.getLogger(__name__)
HINDERED_WAIT_S: Final = 5.0


class DeliveryThread:
    """Delivers from its making until `finish`; `last_error` is then what hindered it, if anything did."""

    def __init__(self, state: Path, *, endpoint: str, token_file: Path) -> None:
        self._state = state
        self._endpoint = endpoint
        self._token_file = token_file
        self._stop = threading.Event()
        self._flush_s = 0.0
        self._delivered = False
        self.last_error = ""
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> bool:
        """Deliver what is left for so long at most; True if nothing is left."""
        self._flush_s = seconds
        self._stop.set()
        self._thread.join()
        return self._delivered

    def _run(self) -> None:
        connection = open_state(self._state)
        delivery = Delivery(
            Spool(connection), endpoint=self._endpoint, token=lambda: self._token_file.read_text(encoding="utf-8").strip()
        )
        try:
            while not self._stop.is_set():
                self._until_hindered(lambda: delivery.run(self._stop, idle_s=0.2))
            self._until_hindered(lambda: self._flush(delivery))
        finally:
            delivery.close()
            connection.close()

    def _flush(self, delivery: Delivery) -> None:
        self._delivered = delivery.flush(seconds=self._flush_s)
        self.last_error = delivery.last_error

    def _until_hindered(self, deliver: Callable[[], None]) -> None:
        """Deliver; a token file or a disk that is gone for a while is told, and then tried again."""
        try:
            deliver()
        except (OSError, sqlite3.Error) as error:
            self.last_error = str(error)
            log.error("delivery: %s; trying again in %s s", error, HINDERED_WAIT_S)
            self._stop.wait(HINDERED_WAIT_S)


@contextmanager
def delivering(state: Path, *, endpoint: str, token_file: Path) -> Iterator[DeliveryThread]:
    """A delivery that ends with the block, at once unless the block has finished it."""
    thread = DeliveryThread(state, endpoint=endpoint, token_file=token_file)
    try:
        yield thread
    finally:
        thread.finish(0)
