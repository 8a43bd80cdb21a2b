"""WSGI entry point of web workers."""

import gc
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from django.core.wsgi import get_wsgi_application
from django.db.migrations.loader import MigrationLoader
from django.urls import get_resolver

from billing.runtime.gc_pause import collector_paused

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")

NEW_OBJECTS: Final = 10_000
"""Allocations between young collections: a batch of records makes thousands of objects, none of which is part of a cycle."""

BETWEEN_ANSWERS: Final = 5
"""Young collections after which an older generation is due; it waits for the end of an answer."""
AT_THE_LATEST: Final = 100
"""Young collections after which it waits no longer, for processes that answer no pages."""

with collector_paused():
    _django = get_wsgi_application()
    _all_views, _all_migrations = get_resolver().url_patterns, MigrationLoader(None)  # not during the first request
    import_module("kombu.transport.redis")  # used by the first `/readyz`
gc.collect()
gc.freeze()  # collections skip objects that live as long as the process
gc.set_threshold(NEW_OBJECTS, AT_THE_LATEST, gc.get_threshold()[2])


class _Answer:
    """Response of Django that collects older garbage when it is closed: the client has the answer then and does not wait.

    In the middle of a page of a thousand teams such a collection took 110 to 205 ms.
    """

    __slots__ = ("_response",)

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._response)

    def close(self) -> None:
        self._response.close()
        _, young, middle = gc.get_count()
        if middle >= BETWEEN_ANSWERS:
            gc.collect()
        elif young >= BETWEEN_ANSWERS:
            gc.collect(1)


def application(environ: dict[str, Any], start_response: Any) -> _Answer:
    return _Answer(_django(environ, start_response))
