"""A host that is not ours is one line of the log, and a database whose disk is full says so."""

import io
import logging
import logging.config
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from django.test import Client

from billing.api import health

FULL = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a web process would write."""
    root = logging.getLogger()
    before = root.handlers[:]
    logging.config.dictConfig(settings.LOGGING)
    (handler,) = (one for one in root.handlers if one.get_name() == "stderr")
    written = io.StringIO()
    handler.setStream(written)  # type: ignore[attr-defined]
    yield written
    root.handlers[:] = before  # later tests of this process rely on the filters of the handlers that Django set up


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/login/", "/", "/readyz", "/api/v1/version", "/nowhere/"])
def test_a_host_that_is_not_ours_is_one_line(path: str, log: io.StringIO) -> None:
    answer = Client().get(path, SERVER_NAME=f"elsewhere.example.org{'x' * 2000}")
    assert answer.status_code == 400
    (line,) = log.getvalue().splitlines()
    assert "elsewhere.example.org" in line
    assert "WARNING django.security.DisallowedHost" in line
    assert len(line) < 500


@pytest.mark.django_db
def test_what_is_refused_at_our_own_host_is_a_line_as_before(log: io.StringIO) -> None:
    assert Client().get("/nowhere/").status_code in (302, 404)
    assert "Traceback" not in log.getvalue()


@pytest.mark.django_db
def test_readiness_says_that_the_disk_is_full_and_leaves_pages_in_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/readyz").json()["database"] == "ok"
    monkeypatch.setattr(health, "WRITES", FULL)
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "reads only", "database": "its disk is full", "migrations": "ok", "broker": "ok"}
    monkeypatch.undo()
    assert Client().get("/readyz").json()["status"] == "ok"


@pytest.mark.django_db
def test_readiness_writes_a_file_on_the_disk_of_the_database_and_leaves_none() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL temp_file_limit = '100kB'")
        cursor.execute("SET LOCAL work_mem = '64kB'")
        with pytest.raises(DatabaseError, match="temporary file size exceeds"):
            cursor.execute(health.WRITES)
