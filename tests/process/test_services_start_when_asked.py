"""A pure test waits for no database and no broker: they start when the first test asks for one of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LOOKS = """
import os
from pathlib import Path

def test_at_the_end() -> None:
    print("begun:", sorted(path.name for path in Path(os.environ["SUANPAN_HOME"]).iterdir()))
"""
ASKS = """
import os
import pytest
import redis
from django.db import connection

@pytest.mark.django_db
def test_the_database_answers() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        assert cursor.fetchone() == (42,)

def test_the_broker_answers(services: None) -> None:
    with redis.Redis.from_url(os.environ["BROKER_URL"]) as broker:
        assert broker.ping()
"""
SERVERS = ("broker.port", "log", "postgres", "postgres.port", "run", "secrets")


def run_pytest(*tests: object) -> str:
    """What a run of its own prints, in an environment that names no services."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", ".", "-s", *map(str, tests)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(line for line in done.stdout.splitlines() if "begun:" in line).partition("begun:")[2]


@pytest.fixture
def looks(tmp_path: Path) -> Path:
    (tmp_path / "test_looks.py").write_text(LOOKS, encoding="utf-8")
    return tmp_path / "test_looks.py"


def test_money_is_tested_without_a_database(looks: Path) -> None:
    begun = run_pytest("tests/unit/test_money.py", looks)
    assert not [name for name in SERVERS if name != "secrets" and repr(name) in begun], begun


def test_both_services_start_for_the_first_test_that_asks(looks: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *  # noqa: F403\n", encoding="utf-8")
    (tmp_path / "test_asks.py").write_text(ASKS, encoding="utf-8")
    begun = run_pytest(tmp_path / "test_asks.py", looks)
    assert [name for name in SERVERS if repr(name) in begun] == list(SERVERS)


def test_a_test_of_one_rule_may_not_ask(tmp_path: Path) -> None:
    both = "from tests.conftest import *  # noqa: F403\nfrom tests.unit.conftest import services\n"
    (tmp_path / "conftest.py").write_text(both, encoding="utf-8")
    (tmp_path / "test_asks.py").write_text("def test_it(db: None) -> None: ...\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="put it into tests/integration"):
        run_pytest(tmp_path / "test_asks.py")
