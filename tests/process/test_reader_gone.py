"""A command whose reader goes away (`manage.py period_report 2026-10 | head`) ends as other programs do, without a word."""

import os
import subprocess
import sys

import pytest

from billing.local.command_line import NOBODY_READS
from tests.cli import PROJECT


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["what is left is written at the end", "each line is written at once"])
@pytest.mark.parametrize("command", ["help", "version"])
def test_nothing_is_said_of_a_pipe_that_nobody_reads(command: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = _printing_to(writing, command, unbuffered)
    assert (done.returncode, done.stderr) == (NOBODY_READS, "")


def test_an_error_is_reported_all_the_same() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = _printing_to(writing, "nonsense", "")
    assert (done.returncode, done.stderr) == (2, "error: no command 'nonsense'; `manage.py help` lists them\n")


def test_a_command_runs_where_its_output_is_closed() -> None:
    done = subprocess.run(
        f"exec {sys.executable} manage.py help >&-", shell=True, cwd=PROJECT, stderr=subprocess.PIPE, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def _printing_to(writing: int, command: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    with os.fdopen(writing, "wb") as output:
        return subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), command], stdout=output, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, timeout=60, check=False,
        )  # fmt: skip
