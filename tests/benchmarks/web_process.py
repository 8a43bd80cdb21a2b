"""One web process, asked directly: what an answer takes of its processor, in waiting, in pauses of Python's collector."""

import gc
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

FULL: Final = 2
"""The generation of a collection that looks at everything."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Milliseconds of one answer: all of it, its own processor's, the collector's pauses among them; and its queries."""

    wall: float
    own: float
    paused: float
    full_collections: int
    queries: int

    @property
    def waited(self) -> float:
        """For the database, and for a core that somebody else had."""
        return max(0.0, self.wall - self.own)


@dataclass(slots=True)
class Pauses:
    """What the collector took since `clear`."""

    milliseconds: float = 0.0
    full: int = 0
    _began: float = field(default=0.0)

    def clear(self) -> None:
        self.milliseconds, self.full = 0.0, 0

    def reports(self, phase: str, info: dict[str, int]) -> None:
        """For `gc.callbacks`."""
        if phase == "start":
            self._began = time.process_time()
            return
        self.milliseconds += (time.process_time() - self._began) * 1000
        self.full += info["generation"] == FULL


class WebProcess:
    """The application that the web process serves, its collector as there, without the network before it."""

    def __init__(self) -> None:
        from billing.settings import wsgi  # collects, freezes and sets the thresholds, as when a web process starts

        self._application, self._pauses = wsgi.application, Pauses()
        self._counted = 0
        gc.callbacks.append(self._pauses.reports)

    def answer(self, path: str, session: str) -> Answer:
        """Ask for a page as whoever has that session."""
        environ = _environ(path, session)
        self._pauses.clear()
        self._counted = 0
        started, used = time.perf_counter(), time.process_time()
        with self._counting(), closing(self._served(environ)) as served:
            status, _body = next(served)
            wall, own = ((now - then) * 1000 for now, then in ((time.perf_counter(), started), (time.process_time(), used)))
            answer = Answer(wall, own, self._pauses.milliseconds, self._pauses.full, self._counted)
        assert status.startswith("200"), (path, status)
        return answer

    def page(self, path: str, session: str) -> str:
        """What is on a page."""
        with closing(self._served(_environ(path, session))) as served:
            return next(served)[1].decode()

    def _served(self, environ: dict[str, Any]) -> Generator[tuple[str, bytes], None, None]:
        """Status and body once all of it is there; closing it is what a server does when it has sent them."""
        found: list[str] = []
        response = self._application(environ, lambda status, *_rest: found.append(status))
        try:
            yield found[0], b"".join(response)
        finally:
            response.close()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        from django.db import connection

        def counted(execute: Any, *arguments: Any) -> Any:
            self._counted += 1
            return execute(*arguments)

        with connection.execute_wrapper(counted):
            yield


def session_of(user: Any) -> str:
    """The cookie of somebody who has signed in."""
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def _environ(path: str, session: str) -> dict[str, Any]:
    from django.conf import settings
    from django.test import RequestFactory

    factory = RequestFactory(headers={"host": os.environ.get("SUANPAN_HOST", "localhost")})
    factory.cookies[settings.SESSION_COOKIE_NAME] = session
    return dict(factory.get(path).environ)
