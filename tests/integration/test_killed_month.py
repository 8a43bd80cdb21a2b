"""kill -9 of workers and of the database server at random points of close, issue, correction and export."""

import subprocess
import sys
from pathlib import Path

from tests.cli import PROJECT, Home

MONTHS = 2


def test_months_killed_at_every_step_have_no_gap_no_double_document_and_no_half_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.crash_month", "20261031"], cwd=PROJECT,
        env={**home.environment, "DJANGO_SETTINGS_MODULE": "billing.settings.base"}, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    deaths = {name: int(count) for name, count in (pair.split("=") for pair in done.stdout.split())}
    assert deaths.keys() == {
        "close/worker", "close/database", "issue/worker", "issue/database",
        "export/worker", "export/database", "export/writing", "correct/worker", "correct/database",
    }  # fmt: skip
    assert all(1 <= count <= MONTHS for count in deaths.values()), deaths
