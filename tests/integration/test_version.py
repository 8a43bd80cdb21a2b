"""`GET /api/v1/version`: which release answers, for who has a token."""

import tomllib
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client

from tests.factories.api import program

pytestmark = pytest.mark.django_db
PROJECT = Path(__file__).resolve().parents[2]


def test_whoever_has_a_token_learns_the_release_and_nobody_else_does() -> None:
    answer = program("budgets:read").get("/api/v1/version")
    release = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    major, minor = divmod(connection.pg_version, 10_000)
    assert (answer.status_code, answer.json()) == (
        200, {"version": release, "postgresql": f"{major}.{minor}", "optional_fields": ["capacity_type", "tags"]},
    )  # fmt: skip
    assert Client().get("/api/v1/version").status_code == 401
