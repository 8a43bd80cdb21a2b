"""Pytest plugin: real PostgreSQL and broker for the whole run, in a home of its own that vanishes with it.

Loaded by `-p tests.services` before Django reads its settings. With DATABASE_URL and BROKER_URL set, those are used.

Where several workers share the tests (`pytest -n 2 --dist loadfile`), each has services and a home of its own, so that
no test meets another's tables, keys or processes; what divides the tests among them needs none.
"""

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

OURS = "SUANPAN_TESTS_START_SERVICES"
"""Set for workers: the addresses that they inherit are nobody's."""
NOBODY = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "BROKER_URL": "redis://127.0.0.1:1/0"}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    from billing.local.embedded import attach

    if os.environ.pop(OURS, None):
        del os.environ["DATABASE_URL"], os.environ["BROKER_URL"]
    given = bool(os.environ.get("DATABASE_URL") and os.environ.get("BROKER_URL"))
    if not given and _divides(early_config):
        os.environ.update(NOBODY, **{OURS: "1"})
        return
    home = Path(tempfile.mkdtemp(prefix="suanpan-tests-"))
    os.environ["SUANPAN_HOME"] = str(home)
    os.environ["STATIC_ROOT"] = str(home / "static")
    (home / "static").mkdir()
    services = None
    if not given:
        services = attach(home)
        os.environ.setdefault("DATABASE_URL", services.database_url)
        os.environ.setdefault("BROKER_URL", services.broker_url)
    elif (worker := os.environ.get("PYTEST_XDIST_WORKER", "")).startswith("gw"):
        address = urlsplit(os.environ["BROKER_URL"])  # databases get the name of the worker from pytest-django
        os.environ["BROKER_URL"] = address._replace(path=f"/{1 + int(worker.removeprefix('gw'))}").geturl()

    def stop() -> None:
        if services is not None:
            services.release()
        shutil.rmtree(home, ignore_errors=True)

    early_config.add_cleanup(stop)


def _divides(early_config: pytest.Config) -> bool:
    """Whether this process runs no tests itself, but hands them to workers."""
    workers = getattr(early_config.known_args_namespace, "numprocesses", None)
    return bool(workers) and "PYTEST_XDIST_WORKER" not in os.environ
