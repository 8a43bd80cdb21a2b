"""The ledger held up: nothing can be written for a while."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from billing.usage import epochs


@contextmanager
def usage_held() -> Iterator[None]:
    """Nothing can be written meanwhile, as during the first moment of a close."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [epochs.USAGE_LOCK])
            held.set()
            done.wait(timeout=60)
            cursor.execute("SELECT pg_advisory_unlock(%s)", [epochs.USAGE_LOCK])
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(timeout=30)
    try:
        yield
    finally:
        done.set()
        holder.join(timeout=30)
