"""Here the real PostgreSQL and broker run throughout."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def services_run(services: None) -> None:
    """For tests, too, whose processes find the services by themselves."""
