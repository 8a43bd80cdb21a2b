"""Liveness and readiness."""

import logging

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from billing.api.problems import read_only
from billing.monitoring.state import tasks_waiting
from billing.runtime.schema_state import migrations_pending

logger = logging.getLogger(__name__)


@read_only
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


@read_only
def readyz(request: HttpRequest) -> HttpResponse:
    """Database and schema are there; 503 with what is missing otherwise.

    The broker is named and takes nothing away: pages and reports need it for no answer.
    """
    parts = {"database": database_state(), "migrations": _migrations()}
    ready = all(state == "ok" for state in parts.values())
    body = {"status": "ok" if ready else "unavailable", **parts, "broker": broker_state()}
    return JsonResponse(body, status=200 if ready else 503)


def database_state() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("readyz: database: %s", error)
        return "unreachable"
    return "ok"


def _migrations() -> str:
    try:
        behind = migrations_pending()
    except DatabaseError:
        return "unknown"
    return f"{behind} not applied" if behind else "ok"


def broker_state() -> str:
    return "unreachable" if tasks_waiting() is None else "ok"
