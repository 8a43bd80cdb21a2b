"""A command waits only for the packages that it uses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import PROJECT, Home


def imported(home: Path, *arguments: str) -> set[str]:
    """The top packages that `manage.py` imports for arguments."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(PROJECT / "manage.py"), *arguments], env=Home(home).environment, cwd=home,
        text=True, capture_output=True, timeout=300, check=True,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize("command", ["period_report", "import_usage", "price_version"])
def test_only_a_workbook_makes_a_command_wait_for_pandas(tmp_path: Path, command: str) -> None:
    found = imported(tmp_path, command, "--help")
    assert {"django", "msgspec"} <= found
    assert found & {"pandas", "openpyxl"} == set()


def test_no_command_waits_for_what_only_pages_draw(tmp_path: Path) -> None:
    assert imported(tmp_path, "migrate", "--help") & {"numpy", "pyarrow", "typst", "xlsxwriter"} == set()
