"""The agent's tests pass in an environment in which Django cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    ours = ["-c", "tests/agent/pytest.ini", "--rootdir", ".", "--confcutdir", "tests/agent"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *ours, "-p", "tests.agent.without_django", *arguments],
        cwd=PROJECT, text=True, capture_output=True, check=False, timeout=500,
        env={**environment, "SUANPAN_HISTORIES": "10"},
    )  # fmt: skip


def test_the_agents_tests_pass_without_django() -> None:
    done = run("tests/agent", "--ignore=tests/agent/test_agent_process.py")  # its processes import what they like
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def test_there_django_really_is_absent() -> None:
    done = run("tests/unit/test_budget_arithmetic.py")
    assert done.returncode != 0
    assert "it is not installed where the agent runs" in done.stdout
