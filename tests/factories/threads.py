"""Several at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gives or raises; they begin together, each in a thread with connections of its own."""
    begin = threading.Barrier(len(calls), timeout=30)

    def run(call: Callable[[], Any]) -> Any:
        begin.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls, timeout=120))
