"""A database as a release left it, and commands of this release on it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from billing.backup.dump import digest_of
from billing.backup.programs import run, server_parameters
from billing.backup.restore import manifest_read, scratch_database
from tests.cli import PROJECT, Home
from tests.upgrade.__main__ import BACKUPS

OPERATOR = "finance"
"""Of finance in every release."""
RELEASES = sorted(path.stem for path in BACKUPS.glob("*.dump"))


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def restored(transactional_db: None, release: str) -> Iterator[str]:
    """The name of a database as the release left it."""
    backup = BACKUPS / f"{release}.dump"
    assert digest_of(backup) == manifest_read(backup)["sha256"]
    with scratch_database() as name:
        run("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", str(backup), database=name)
        yield name


@pytest.fixture
def manage(restored: str, tmp_path: Path) -> "Manage":
    return Manage(restored, tmp_path)


class Manage:
    """Runs commands of this release on the restored database."""

    def __init__(self, database: str, path: Path) -> None:
        facts = server_parameters(database)
        user = f"{quote(facts['user'])}:{quote(facts.get('password', ''))}"
        address = f"postgresql://{user}@{facts['host']}:{facts['port']}/{database}"
        self.environment = {**Home(path).environment, "DATABASE_URL": address}

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = self.ended(*arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def ended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that ended in any way but with a traceback."""
        done = subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments], env=self.environment, text=True,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stdout + done.stderr
        return done

    def begun(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """A command that is at work."""
        return subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), *arguments], env=self.environment)

    def works_as(self, application: str, *, owner: str) -> None:
        """From now on with two roles, both with the password that their name is."""
        address = urlsplit(self.environment["DATABASE_URL"])
        for name, role in (("DATABASE_OWNER_URL", owner), ("DATABASE_URL", application)):
            place = f"{role}:{role}@{address.hostname}:{address.port}"
            self.environment[name] = address._replace(netloc=place).geturl()
