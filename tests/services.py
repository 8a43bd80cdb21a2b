"""Pytest plugin: real PostgreSQL and broker for the whole run, in a home of its own that vanishes with it.

Loaded by `-p tests.services` before Django reads its settings. With DATABASE_URL and BROKER_URL set, those are used.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    from billing.config.embedded import attach

    home = Path(tempfile.mkdtemp(prefix="suanpan-tests-"))
    os.environ["SUANPAN_HOME"] = str(home)
    os.environ["STATIC_ROOT"] = str(home / "static")
    (home / "static").mkdir()
    services = None
    if not (os.environ.get("DATABASE_URL") and os.environ.get("BROKER_URL")):
        services = attach(home)
        os.environ.setdefault("DATABASE_URL", services.database_url)
        os.environ.setdefault("BROKER_URL", services.broker_url)

    def stop() -> None:
        if services is not None:
            services.release()
        shutil.rmtree(home, ignore_errors=True)

    early_config.add_cleanup(stop)
