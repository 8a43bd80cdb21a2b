"""`.ci/run`: a fresh machine runs it, and reads its last lines."""

import os
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_the_ci_run_installs_ends_with_the_tests_and_needs_no_terminal() -> None:
    script = (PROJECT / ".ci/run").read_text()
    assert os.access(PROJECT / ".ci/run", os.X_OK)
    assert "set -euo pipefail\n" in script
    assert script.rstrip().splitlines()[-1].startswith("exec timeout ")
    assert script.rstrip().endswith("make --no-print-directory test")
    subprocess.run(["bash", "-n", str(PROJECT / ".ci/run")], check=True)
