"""A home that is damaged is one line that says what and what to do; two who want to serve it do not both."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from billing.local.embedded import attach
from billing.local.embedded.binaries import postgres_directory
from billing.local.embedded.errors import EmbeddedError
from billing.local.embedded.layout import Layout
from billing.local.embedded.servers import port_for
from billing.local.process_list import PortTakenError, ServedError, account_put, serving_alone
from billing.runtime.home import PROJECT, HomeError, secret


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe\x00" * 30])
@pytest.mark.parametrize(("name", "advice"), [
    ("django-secret-key", "delete it: with a new one all sign in again"),
    ("postgres-password", "put back its copy from a backup of the home"),
    ("broker-password", "delete it: a new one is made"),
])  # fmt: skip
def test_a_secret_that_is_damaged_is_named_with_what_to_do(name: str, advice: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "secrets" / name
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(HomeError, match=f"{path} is damaged: .*{advice}"):
        secret(name, tmp_path)


def test_a_version_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("")
    with pytest.raises(EmbeddedError, match=f"{tmp_path}/PG_VERSION is damaged"):
        postgres_directory(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"0", b"700000", b"9" * 5000, b"\x00\xff", "²".encode()])
def test_a_port_that_is_damaged_is_chosen_anew(content: bytes, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.port("postgres").write_bytes(content)
    port = port_for(layout, "postgres")
    assert 20_000 <= port < 32_000
    assert port_for(layout, "postgres") == port


@pytest.mark.parametrize("content", ["", "[]", "null", '{"admin": 7}', "\x00\xff"])
def test_accounts_that_are_damaged_are_named(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUANPAN_HOME", str(tmp_path))
    (tmp_path / "accounts.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(HomeError, match=r"accounts\.json is damaged: delete it"):
        account_put(username="admin", staff=True)


def test_what_a_cluster_lacks_is_one_line(tmp_path: Path) -> None:
    """Each damage is done to the same cluster and mended again."""
    home = tmp_path / "home"
    with attach(home, need=("postgres",)):
        pass
    for name, said in {
        "secrets/postgres-password": "postgres-password is gone, and .*/postgres was made with it: put back its copy",
        "postgres/global/pg_control": "could not open file .*a file of the home is gone: put back the home from a backup",
        "postgres/pg_wal": "FATAL: .*pg_wal.* does not exist.*a file of the home is gone: put back the home",
        "postgres/PG_VERSION": r"postgres is damaged: it has \S+ and no PG_VERSION; put it back from a backup",
    }.items():
        (home / name).rename(tmp_path / "away")
        with pytest.raises(EmbeddedError, match=said) as refused:
            attach(home, need=("postgres",))
        assert "\n" not in str(refused.value)
        (tmp_path / "away").rename(home / name)
    with attach(home, need=("postgres",)) as services:
        psycopg.connect(services.database_owner_url).close()


@pytest.mark.parametrize("damage", ["secrets/django-secret-key", "secrets/postgres-password", "postgres/base"])
def test_a_command_says_it_in_one_line(damage: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / damage).parent.mkdir(parents=True)
    (home / damage).write_text("")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY")
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "period_report", "2026-10"], env={**environment, "SUANPAN_HOME": str(home)},
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "is damaged" in line
    assert str(home) in line


def test_of_two_who_serve_a_home_the_second_hears_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUANPAN_HOME", str(tmp_path))
    with serving_alone(28_411):
        said = f"served already, by process {os.getpid()} on port 28411: stop that first"
        with pytest.raises(ServedError, match=said), serving_alone(28_412):
            pytest.fail("both live")
        monkeypatch.setenv("SUANPAN_HOME", str(tmp_path / "other"))
        with serving_alone(28_412):
            pass
    monkeypatch.setenv("SUANPAN_HOME", str(tmp_path))
    with serving_alone(28_412):
        pass


def test_a_port_of_somebody_else_is_still_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUANPAN_HOME", str(tmp_path))
    monkeypatch.setattr("billing.local.process_list.is_free", lambda _: False)
    with pytest.raises(PortTakenError, match=r"port 28411 on 127\.0\.0\.1 is in use"), serving_alone(28_411):
        pytest.fail("it is taken")
