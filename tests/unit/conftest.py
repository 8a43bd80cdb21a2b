"""Tests of one rule start nothing: whoever needs the database, the broker or another process belongs in another folder."""

import pytest


@pytest.fixture(scope="session")
def services() -> None:
    """Ask for the database here, and the test fails."""
    pytest.fail("a test in tests/unit asks for the database: put it into tests/integration")
