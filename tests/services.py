"""Pytest plugin: a real PostgreSQL and broker, started when the first test asks for them.

Loaded by `-p tests.services` before Django reads its settings; their home vanishes with the run. Until a test asks
for the database, or for `services` itself, nothing listens at the addresses in the environment, so a pure test starts
no process and cannot reach one by mistake. With DATABASE_URL and BROKER_URL set, those are used.

Where several workers share the tests (`pytest -n 2 --dist loadfile`), each has services and a home of its own, so that
no test meets another's tables, keys or processes; what divides the tests among them needs none.

The servers are those of the wheels, the same on every machine; SUANPAN_SERVERS=machine takes what the machine has.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from billing.local.embedded.binaries import CHOICE, WHEELS

OURS = "SUANPAN_TESTS_START_SERVICES"
"""Set while the addresses in the environment are nobody's; workers inherit it with them."""
NOBODY = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "BROKER_URL": "redis://127.0.0.1:1/0"}
KEEPS_NOTHING = "PYTHONDONTWRITEBYTECODE"
"""Set in many containers: every one of the hundreds of processes that tests start would compile the project anew."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    os.environ.pop(KEEPS_NOTHING, None)
    os.environ.setdefault(CHOICE, WHEELS)
    sys.dont_write_bytecode = False
    if OURS in os.environ or not (os.environ.get("DATABASE_URL") and os.environ.get("BROKER_URL")):
        os.environ.update(NOBODY, **{OURS: "1"})
    if _divides(early_config):
        return
    home = Path(tempfile.mkdtemp(prefix="suanpan-tests-"))
    os.environ["SUANPAN_HOME"] = str(home)
    os.environ["STATIC_ROOT"] = str(home / "static")
    (home / "static").mkdir()
    if OURS not in os.environ and (worker := os.environ.get("PYTEST_XDIST_WORKER", "")).startswith("gw"):
        address = urlsplit(os.environ["BROKER_URL"])  # databases get the name of the worker from pytest-django
        os.environ["BROKER_URL"] = address._replace(path=f"/{1 + int(worker.removeprefix('gw'))}").geturl()
    early_config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))


@pytest.fixture(scope="session")
def services() -> Iterator[None]:
    """PostgreSQL and the broker run, at the addresses in the environment and in the settings of Django and Celery."""
    if OURS not in os.environ:
        yield
        return
    from billing.local.embedded import attach

    with attach(Path(os.environ["SUANPAN_HOME"])) as running:
        del os.environ[OURS]
        os.environ.update(DATABASE_URL=running.database_owner_url, BROKER_URL=running.broker_url)
        _settings_follow(running.database_owner_url, running.broker_url)
        _wait_for_no_disk(running.database_owner_url)
        yield


def _settings_follow(database_url: str, broker_url: str) -> None:
    from celery import current_app
    from django.conf import settings

    address = urlsplit(database_url)
    settings.DATABASES["default"].update(
        NAME=address.path.lstrip("/"), USER=address.username, PASSWORD=address.password, HOST=address.hostname,
        PORT=str(address.port),
    )  # fmt: skip
    settings.CELERY_BROKER_URL = settings.CACHE_URL = current_app.conf.broker_url = broker_url


def _wait_for_no_disk(database_url: str) -> None:
    """Tests kill processes, of PostgreSQL too, but not the machine: what was committed outlives them without `fsync`."""
    import psycopg

    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):
            connection.execute(statement)


def _divides(early_config: pytest.Config) -> bool:
    """Whether this process runs no tests itself, but hands them to workers."""
    workers = getattr(early_config.known_args_namespace, "numprocesses", None)
    return bool(workers) and "PYTEST_XDIST_WORKER" not in os.environ
