"""Look for new counterexamples: ``python -m tests.explore --minutes 120`` runs all properties until the time is up.

Each pass has a fresh seed, which it prints; `SUANPAN_EXPLORE=1 pytest TEST --hypothesis-seed=SEED` plays it again.
Hypothesis keeps what fails in `.hypothesis/`, tries it first in the next pass, and writes a patch that adds it to the
test as an explicit example. Exit status 1 if any pass failed.
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

SUITES = (
    "tests/unit", "tests/property", "tests/golden", "tests/process", "tests/agent", "tests/scenarios", "tests/integration",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run passes until the minutes are over; the status says whether all of them passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120, help="how long (default: %(default)s)")
    parser.add_argument("tests", nargs="*", default=SUITES, help="files or folders (default: all suites with properties)")
    chosen = parser.parse_args(arguments)
    deadline, failed, number = time.monotonic() + chosen.minutes * 60, [], 0
    while (left := deadline - time.monotonic()) > 0:
        seed, number = secrets.randbelow(2**32), number + 1
        print(f"pass {number}, seed {seed}, {left / 60:.0f} minutes left", flush=True)
        status = run_pass(chosen.tests, seed, left)
        if status == "failed":
            failed.append(seed)
    print(f"{number} passes; failed: {', '.join(map(str, failed)) or 'none'}", flush=True)
    return bool(failed)


def run_pass(tests: Sequence[str], seed: int, seconds: float) -> str:
    """`passed`, `failed`, or `stopped` where the time was up first."""
    options = ["-c", "pyproject.toml", "-m", "hypothesis", f"--hypothesis-seed={seed}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    with subprocess.Popen(command, env={**os.environ, "SUANPAN_EXPLORE": "1"}, preexec_fn=heeds_interrupts) as process:
        try:
            return "passed" if process.wait(seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return "stopped"


def heeds_interrupts() -> None:
    """A program that a shell started in the background ignores SIGINT, and so does what it starts in turn."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    raise SystemExit(main())
