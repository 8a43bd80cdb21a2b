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


def test_a_suite_that_cannot_run_is_named_and_fails_in_ci_before_any_test() -> None:
    def make_test(ci: str) -> subprocess.CompletedProcess[str]:
        # `true` stands in for lint and pytest, an empty PROMETHEUS for a machine without one.
        return subprocess.run(
            ["make", "--no-print-directory", "--old-file=lint", "test", "BIN=true #", "PROMETHEUS="],
            cwd=PROJECT, env={**os.environ, "CI": ci}, capture_output=True, text=True,
        )  # fmt: skip

    left_out = "make test: tests/prometheus is left out: this machine lacks prometheus,promtool"
    on_a_desk, in_ci = make_test(""), make_test("true")
    assert (on_a_desk.returncode, in_ci.returncode) == (0, 2)
    assert left_out in on_a_desk.stderr
    assert left_out in in_ci.stderr
    assert "CI leaves no suite out" in in_ci.stderr
