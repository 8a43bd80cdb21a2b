"""A supervisor in a process of its own: `supervised.py KIND [DIRECTORY]`; the tests signal it and read what it says."""

import sys
from pathlib import Path

from billing.local.supervisor import Child, Supervisor

BIN = Path(sys.executable).parent
SLEEPER = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); print('serving'); time.sleep(300)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(300)"
FAILING = "import sys; print('about to fail'); print('no such table: ledger', file=sys.stderr); sys.exit(3)"


def python(name: str, code: str) -> Child:
    return Child(name, [sys.executable, "-c", code])


def real_parts(directory: str, port: str) -> list[Child]:
    """What `manage.py up` runs: processes that fork processes."""
    celery = [str(BIN / "celery"), "-A", "tree:tasks", f"--workdir={directory}"]
    uvicorn = [str(BIN / "uvicorn"), "--port", port, "--app-dir", directory, "--lifespan", "off"]
    return [
        Child("web", [*uvicorn, "--workers", "2", "tree:web"]),
        Child("worker", [*celery, "worker", "--concurrency", "2"]),
        Child("scheduler", [*celery, "beat", "--pidfile=", "--schedule", f"{directory}/beat"]),
    ]


def main() -> int:
    kind, *arguments = sys.argv[1:]
    if kind == "real":
        return Supervisor(real_parts(*arguments), on_ready=lambda: print("all ready", flush=True)).run()
    parts = {
        "sleeping": [python("one", SLEEPER), python("other", SLEEPER)],
        "deaf": [python("deaf", DEAF)],
        "failing": [python("steady", SLEEPER), python("frail", FAILING)],
        "missing": [Child("absent", ["/nonexistent/program"])],
        "late": [Child("late", [sys.executable, "-c", SLEEPER], ready=lambda: False, ready_seconds=0.3)],
    }[kind]
    return Supervisor(parts, restarts=2, back_off=0.05, grace=1.0).run()


if __name__ == "__main__":
    sys.exit(main())
