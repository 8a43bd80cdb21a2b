"""Running commands as a user does: a home of its own, nothing configured, a real process."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


@dataclass
class Home:
    """A SUANPAN_HOME and the commands run in it."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """The caller's environment without anything that configures Suanpan."""
        ours = ("DATABASE_URL", "DATABASE_OWNER_URL", "BROKER_URL", "SECRET_KEY", "DJANGO_SETTINGS_MODULE", "STATIC_ROOT")
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return {**kept, "SUANPAN_HOME": str(self.path / "home"), "PYTHONWARNINGS": "error::ResourceWarning"}

    def run(self, *arguments: str, status: int = 0, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` with arguments and expect an exit status."""
        done = subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments], env=self.environment, cwd=self.path, text=True,
            capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{arguments} gave {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `manage.py` with arguments, its output merged into one pipe."""
        return subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), *arguments], env=self.environment, cwd=self.path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
