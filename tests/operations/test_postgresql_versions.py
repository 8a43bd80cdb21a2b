"""The same month gives the same documents, byte for byte, on every supported PostgreSQL that is installed here.

Beside the wheel's and Debian's, SUANPAN_TEST_POSTGRES lists directories of programs of further ones, with colons between.
"""

import json
import os
import subprocess
import sys

import pytest

from billing.local.embedded.binaries import OLDEST_POSTGRES
from billing.runtime.home import PROJECT
from tests.operations.postgres import installed, new_server

DOCUMENTS: dict[int, object] = {}


def test_the_oldest_supported_and_the_one_that_comes_with_us_are_here() -> None:
    assert {OLDEST_POSTGRES, 18} <= installed().keys(), "apt-get install postgresql-15"


@pytest.mark.parametrize("version", sorted(installed()))
def test_a_month_is_taken_closed_issued_and_proven(version: int) -> None:
    with new_server(installed()[version]) as server:
        server.command("CREATE DATABASE suanpan")
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tests.operations.month"], cwd=PROJECT, capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "DATABASE_URL": server.url("suanpan")}, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    number, total, digest = found["documents"].pop()
    assert found == {"server": version, "accepted": [100, 1], "duplicates": 10, "documents": [], "proven": [True]}
    assert (number, total) == ("AI-INFRA-2026-000001", "209.86")
    assert DOCUMENTS.setdefault(0, digest) == digest
