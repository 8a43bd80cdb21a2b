"""Liveness and readiness."""

import logging
from typing import Final

from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from psycopg.errors import DiskFull

from billing.api.problems import read_only
from billing.monitoring.state import tasks_waiting
from billing.runtime.schema_state import migrations_pending

logger = logging.getLogger(__name__)
FULL: Final = "its disk is full"
WRITES: Final = "SELECT count(*) FROM generate_series(1, 20000)"
"""Query that writes to the database's disk: beyond `work_mem` its rows go to a temporary file of some 300 kB."""


@read_only
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that the process is alive."""
    return JsonResponse({"status": "ok"})


@read_only
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if database and schema are usable, else 503 with the missing part.

    With a full disk the status is `reads only`, and 200: pages show stored data, while reports get 503. The broker is
    named but does not count: pages and reports need it for no answer.
    """
    parts = {"database": database_state(), "migrations": _migrations()}
    ready = parts["database"] in ("ok", FULL) and parts["migrations"] == "ok"
    status = "unavailable" if not ready else "reads only" if parts["database"] == FULL else "ok"
    return JsonResponse({"status": status, **parts, "broker": broker_state()}, status=200 if ready else 503)


def database_state() -> str:
    """Return `ok`, `unreachable`, or `its disk is full`: then it reads, and takes no report."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL work_mem = '64kB'")
            cursor.execute(WRITES)
    except DatabaseError as error:
        logger.warning("readyz: database: %s", error)
        return FULL if isinstance(error.__cause__, DiskFull) else "unreachable"
    return "ok"


def _migrations() -> str:
    try:
        behind = migrations_pending()
    except DatabaseError:
        return "unknown"
    return f"{behind} not applied" if behind else "ok"


def broker_state() -> str:
    return "unreachable" if tasks_waiting() is None else "ok"
