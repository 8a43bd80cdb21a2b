"""Read-only pages on a streaming replica, if DATABASE_REPLICA_URL is set; all else reads and writes the primary.

This module is the only place with that choice. Reasons: `docs/adr/0033-pages-from-a-read-replica.md`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.cache import patch_cache_control

from billing.tenancy.access import access_of

REPLICA: Final = "replica"
PAGES: Final = frozenset({
    "home", "explorer", "overview", "search", "audit", "late", "board", "team", "line", "evidence", "invoices", "invoice",
    "proof", "note", "anomalies", "recovery", "prices", "price_version", "ownership", "sources",
})  # fmt: skip
"""Names of the pages that read the replica: they show data, and the forms that they lead to read the primary."""
WROTE: Final = "suanpan_wrote"
"""Cookie of a person who has just changed something and must see it."""
HEADER: Final = "Suanpan-Data-As-Of"
CHECK_EVERY_S, FORGET_S, RETRY_S = 1.0, 5.0, 10.0
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
NOW_AND_WRITTEN = "SELECT clock_timestamp(), pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
REPLAYED = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END"
logger = logging.getLogger(__name__)


class ReplicaProgress:
    """Progress of the replica: positions in the log of the primary, each with the time at which it was the last one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._marks = deque[tuple[datetime, int]]()
        self._through: datetime | None = None
        self._checked, self._next = 0.0, 0.0

    def data_through(self) -> datetime | None:
        """Return the time through which the replica is complete; None if it is unreachable, no replica, or too far behind.

        One request per second checks; the others use its result.
        """
        if monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._check()
            finally:
                self._lock.release()
        return self._through if monotonic() - self._checked < FORGET_S else None

    def lost(self) -> None:
        """Pause checks of the replica for some seconds, since it did not answer."""
        self._through, self._next = None, monotonic() + RETRY_S

    def _check(self) -> None:
        self._checked, self._next = monotonic(), monotonic() + CHECK_EVERY_S
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(NOW_AND_WRITTEN)
            now, written = cursor.fetchone()
        self._marks.append((now, written))
        limit = now - timedelta(seconds=settings.DATABASE_REPLICA_MAX_LAG_SECONDS)
        while self._marks[0][0] < limit:
            self._marks.popleft()
        try:
            with connections[REPLICA].cursor() as cursor:
                cursor.execute(REPLAYED)
                (replayed,) = cursor.fetchone()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the read replica does not answer, pages read the primary: %s", error)
            self.lost()
            return
        # by log positions, since a replica of an idle primary has no recent transaction to date it by
        here = [at for at, position in self._marks if replayed is not None and position <= replayed]
        self._through = max(here, default=None)


progress = ReplicaProgress()


@contextmanager
def reading_replica() -> Iterator[None]:
    """Redirect all queries of this thread, by models or in SQL, to the replica, which refuses writes."""
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[REPLICA]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


class ReadReplicaMiddleware:
    """Middleware around the view, the last in the list. Pages that the replica cannot fully answer come from the primary."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if REPLICA not in settings.DATABASES:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.method not in SAFE:
            response.set_cookie(
                WROTE, "1", max_age=settings.DATABASE_REPLICA_MAX_LAG_SECONDS + 1, httponly=True, samesite="Lax",
                secure=settings.SESSION_COOKIE_SECURE,
            )  # fmt: skip
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponse], args: tuple[Any, ...], named: dict[str, Any]
    ) -> HttpResponse | None:
        """Return the page from the replica; None: the primary answers."""
        if not _only_shows(request) or not request.user.is_authenticated:
            return None
        access_of(request.user)  # cached on the user from the primary, so that a revoked right is gone
        through = progress.data_through()
        if through is None:
            return None
        request.data_as_of = through  # type: ignore[attr-defined]
        try:
            with reading_replica():
                answer = view(request, *args, **named)
        except (DatabaseError, InterfaceError, Http404) as error:
            logger.info("%s reads the primary: %s", request.path, error)
            answer = None
        if answer is not None and _is_page(answer):
            answer.headers[HEADER] = through.isoformat()
            patch_cache_control(answer, private=True, no_store=True)
            return answer
        del request.data_as_of  # type: ignore[attr-defined]
        return None


def _only_shows(request: HttpRequest) -> bool:
    match = request.resolver_match
    known = match is not None and match.namespace == "portal" and match.url_name in PAGES
    return known and request.method in SAFE and WROTE not in request.COOKIES


def _is_page(answer: HttpResponse) -> bool:
    """Return True for a page: not a file, and not an error that may only be due to replication lag."""
    plain = not answer.streaming and "Content-Disposition" not in answer.headers
    return plain and answer.status_code == HTTPStatus.OK
