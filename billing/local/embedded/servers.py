"""Embedded servers: PostgreSQL, made by initdb on first use, and a broker in memory; both in the foreground on loopback."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from billing.local.embedded.account import server_account
from billing.local.embedded.binaries import postgres_directory, valkey_server
from billing.local.embedded.errors import EmbeddedError, PortTaken, log_since, log_size, start_failed
from billing.local.embedded.layout import Layout, acquire, holders, open_lock, write_whole
from billing.runtime.atomic_file import folder_sync
from billing.runtime.home import secret

POSTGRES, BROKER = "postgres", "broker"
LOOPBACK: Final = "127.0.0.1"
DATABASE = USER = "suanpan"
APPLICATION = "suanpan_app"
PASSWORD, APPLICATION_PASSWORD = "postgres-password", "postgres-application-password"
BROKER_PASSWORD = "broker-password"  # noqa: S105 -- the name of the secret
_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Ports below the ephemeral ones (from 32768 up): an outgoing connection could take such a port between two starts."""
_PORTS_TRIED = 5
_POLL_SECONDS = 0.02
_PREDECESSOR_SECONDS = 10.0
_LOG_BYTES = 16 * 1024 * 1024
_PROBE_SECONDS = 2.0
_BUILTIN_LOCALE_SINCE = 17
_SHARED_MEMORY_BYTES = 256 * 1024 * 1024


class Server(ABC):
    """Server of a home, a child of its keeper.

    Its processes hold the lock named after it for as long as one of them lives. So a process that gets the lock knows that
    no predecessor touches the data any more, and may clear the leftovers of a killed predecessor.
    """

    name: str
    title: str
    ready_seconds: float
    on_parent_death: signal.Signals
    stopping: tuple[tuple[signal.Signals, float], ...]
    """Signals to stop it, each with the seconds before the next one; after the last comes SIGKILL."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.log = layout.log(self.name)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self, lock: int) -> None:
        """Prepare the files on disk for a start."""

    @abstractmethod
    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        """Start the program on `self.port`."""

    @abstractmethod
    def serves(self, process: subprocess.Popen[bytes]) -> bool:
        """Return True if this very server serves."""

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server and wait until it serves. Raises EmbeddedError with the end of its log otherwise."""
        if log_size(self.log) > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        lock = self._await_end_of_all()
        try:
            self.prepare(lock)
            for attempt in range(_PORTS_TRIED):
                self.port = port_for(self.layout, self.name, another=attempt > 0)
                offset = log_size(self.log)
                self.process = self.launch(lock)
                with contextlib.suppress(PortTaken):
                    self._await_service(self.process, offset)
                    return self.process
        finally:
            # the server has inherited the lock and holds it from here on
            os.close(lock)
        raise EmbeddedError(f"{self.title} found no free port on loopback in {_PORTS_TRIED} attempts; see {self.log}")

    def stop(self) -> None:
        """Stop the server by stronger and stronger signals; return when each of its processes has ended."""
        if self.process is None:
            return
        for sign, seconds in (*self.stopping, (signal.SIGKILL, 10.0)):
            if self.process.poll() is None:
                self.process.send_signal(sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)
        os.close(self._await_end_of_all())

    def _await_service(self, process: subprocess.Popen[bytes], offset: int) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while process.poll() is None:
            if self.serves(process):
                return
            if time.monotonic() > deadline:
                process.kill()
                raise start_failed(f"{self.title} did not answer within {self.ready_seconds:.0f} s; it", self.log, offset)
            time.sleep(_POLL_SECONDS)
        raise start_failed(self.title, self.log, offset)

    def _await_end_of_all(self) -> int:
        """Wait until no process of the server lives, and kill those that do not end; return its lock, taken."""
        path = self.layout.lock(self.name)
        lock = open_lock(path)
        if not acquire(lock, fcntl.LOCK_EX, _PREDECESSOR_SECONDS):
            leftovers = list(holders(path))
            for pid in leftovers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not acquire(lock, fcntl.LOCK_EX, _PREDECESSOR_SECONDS):
                os.close(lock)
                raise EmbeddedError(f"an earlier {self.title} of this home does not end (pids {leftovers}); end it by hand")
        return lock


class Postgres(Server):
    """Server that owns `postgres/` of a home. Committed data survive a kill of every process."""

    name = POSTGRES
    title = "PostgreSQL"
    ready_seconds = 600.0  # recovery replays the log of a killed server, which may be long
    on_parent_death = signal.SIGINT
    stopping = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0))  # fast, then immediate shutdown

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.programs, self.version = postgres_directory(layout.data)
        self.account = server_account(layout.data, (self.programs / "initdb", self.programs / "postgres"))

    def prepare(self, lock: int) -> None:
        """Create the cluster if there is none, and delete the pid file of a killed server.

        PostgreSQL would refuse to start if that pid now belonged to another process, as it soon does in containers. No
        server of ours can be alive here; a server started by hand holds no lock of ours, but works in its data directory.
        """
        word = self.layout.home / "secrets" / PASSWORD
        if not (self.layout.data / "PG_VERSION").exists():
            self._make_cluster(lock)
        elif not word.exists():  # a new one would open nothing
            raise EmbeddedError(f"{word} is gone, and {self.layout.data} was made with it: put back its copy from a backup")
        pid_file = self.layout.data / "postmaster.pid"
        if pid_file.exists():
            pid = pid_file.read_text().partition("\n")[0]
            with contextlib.suppress(OSError):  # no such process
                if Path("/proc", pid, "cwd").samefile(self.layout.data):
                    raise EmbeddedError(f"process {pid}, not started by Suanpan, uses {self.layout.data}; stop it first")
            pid_file.unlink()

    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        argv = [str(self.programs / "postgres"), "-D", str(self.layout.data), "-p", str(self.port)]
        for name, value in _settings().items():
            argv += ["-c", f"{name}={value}"]
        return self.account.launch(argv, log=self.log, on_parent_death=self.on_parent_death, lock=lock)

    def serves(self, process: subprocess.Popen[bytes]) -> bool:
        """Return True if postmaster.pid has the pid of our own child in line 1 and the status `ready` in line 8."""
        try:
            lines = (self.layout.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(process.pid)] and len(lines) >= 8 and lines[7].strip() == "ready"

    def _make_cluster(self, lock: int) -> None:
        """Build the cluster beside and rename it: a home has none or a complete one, even after a power failure."""
        data, draft = self.layout.data, self.layout.data.with_name("postgres.new")
        if draft.exists():
            shutil.rmtree(draft)
        if data.exists():
            if found := next(data.iterdir(), None):  # a new cluster would look as if nothing had ever been billed
                raise EmbeddedError(
                    f"{data} is damaged: it has {found.name} and no PG_VERSION; put it back from a backup of the home, or "
                    "move it away and restore a dump into the new database (docs/operations.md, Backups)"
                )
            data.rmdir()
        draft.mkdir(mode=0o700)
        self.account.give(draft)
        locale = ["--locale=C.UTF-8"]
        if self.version >= _BUILTIN_LOCALE_SINCE:
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        with tempfile.NamedTemporaryFile("w", dir=draft.parent, prefix="password.") as password:
            password.write(secret(PASSWORD, self.layout.home))
            password.flush()
            self.account.give(Path(password.name))
            argv = ["initdb", "-D", str(draft), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password.name}"]
            self._run([*argv, "-E", "UTF8", *locale, "--no-instructions"], lock)
        # single-user mode needs no connection; a statement ends with an empty line
        word = secret(APPLICATION_PASSWORD, self.layout.home)
        statements = f"CREATE ROLE {APPLICATION} LOGIN PASSWORD '{word}';\n\nCREATE DATABASE {DATABASE};\n"
        self._run(["postgres", "--single", "-j", "-D", str(draft), "postgres"], lock, statements)
        draft.rename(data)
        folder_sync(data.parent)

    def _run(self, command: list[str], lock: int, text: str = "") -> None:
        """Run one of PostgreSQL's programs to its end. In single-user mode an error does not change its exit status."""
        log = self.layout.log("initdb")
        offset = log_size(log)
        argv = [str(self.programs / command[0]), *command[1:]]
        process = self.account.launch(argv, log=log, on_parent_death=signal.SIGTERM, lock=lock, text=text)
        status = process.wait()
        said = log_since(log, offset, lines=100)
        if status != 0 or any(word in line for line in said for word in ("ERROR:", "FATAL:", "PANIC:")):
            raise start_failed(f"PostgreSQL ({command[0]})", log, offset)


class Broker(Server):
    """Server valkey-server (or redis-server) without any file of its own: the tasks to be done are in the database."""

    name = BROKER
    title = "Valkey"
    ready_seconds = 30.0
    on_parent_death = signal.SIGTERM
    stopping = ((signal.SIGTERM, 5.0),)

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.program = valkey_server()
        self.account = server_account(layout.data, (self.program,))
        self.password = secret(BROKER_PASSWORD, layout.home)

    def prepare(self, lock: int) -> None:
        """Do nothing: there are no files."""

    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        """Start it with its configuration on stdin, so that no file and no process list has the password."""
        text = (
            f"bind {LOOPBACK}\nport {self.port}\nrequirepass {self.password}\n"
            'dir /\nsave ""\nappendonly no\ndaemonize no\ntcp-backlog 128\nloglevel notice\n'
        )
        argv = [str(self.program), "-"]
        return self.account.launch(argv, log=self.log, on_parent_death=self.on_parent_death, lock=lock, text=text)

    def serves(self, process: subprocess.Popen[bytes]) -> bool:
        """Return True if the port accepts our password."""
        return answers(self.layout, self.name, self.port)


def server_of(layout: Layout, name: str) -> Server:
    """Return the server of that name.  Raises EmbeddedError where its programs or an account for it are missing."""
    return Postgres(layout) if name == POSTGRES else Broker(layout)


def answers(layout: Layout, name: str, port: int) -> bool:
    """Return True if the server accepts sessions on this port, as a client sees it.

    PostgreSQL asks for the password then; one that starts, recovers or shuts down answers with an error.
    """
    if name == BROKER:
        password = secret(BROKER_PASSWORD, layout.home)
        return b"+PONG" in _ask(port, f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode(), until_closed=True)
    parameters = b"user\0suanpan\0database\0suanpan\0\0"
    return _ask(port, struct.pack("!ii", len(parameters) + 8, 196_608) + parameters)[:1] == b"R"  # protocol 3.0


def _ask(port: int, question: bytes, *, until_closed: bool = False) -> bytes:
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=_PROBE_SECONDS) as connection:
        connection.sendall(question)
        while part := connection.recv(512):
            answer += part
            if not until_closed:
                break
    return answer


def port_for(layout: Layout, name: str, *, another: bool = False) -> int:
    """Return the port of a server: the remembered one, another one if a program has taken it, which is remembered then.

    another: the remembered one has just proved to be taken.
    """
    path = layout.port(name)
    said = path.read_text(errors="replace") if path.exists() else ""
    port = int(said) if said.isdecimal() and len(said) < 6 else 0
    if another or not is_free(port):
        drawn = (number for number in random.sample(_BELOW_EPHEMERAL, 200) if number != port and is_free(number))
        if not (port := next(drawn, 0)):
            raise EmbeddedError(f"{name} found no free port on loopback in 200 attempts")
        write_whole(path, str(port))
    return port


def is_free(port: int) -> bool:
    """Return True if it is a port on which no program listens on loopback."""
    if not 0 < port < 65_536:
        return False
    with contextlib.suppress(OSError), socket.create_server((LOOPBACK, port)):
        return True
    return False


def _settings() -> dict[str, str]:
    """Return the settings. Durability is a promise, so fsync and synchronous_commit stay on whatever a benchmark shows."""
    try:
        free = os.statvfs("/dev/shm")  # noqa: S108 -- asked for its size only
        room = free.f_bavail * free.f_frsize
    except OSError:
        room = 0
    return {
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",
        "max_connections": "300",
        "shared_buffers": "256MB",
        "effective_cache_size": "1GB",
        "work_mem": "16MB",
        "maintenance_work_mem": "128MB",
        # containers give /dev/shm 64 MB, which a query can fill; files have no limit
        "dynamic_shared_memory_type": "posix" if room >= _SHARED_MEMORY_BYTES else "mmap",
        "random_page_cost": "1.1",
        "jit": "off",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "max_wal_size": "1GB",  # after a kill the log since the last checkpoint is replayed, about 80 MB/s on a busy machine
        "checkpoint_timeout": "5min",
        "checkpoint_completion_target": "0.9",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_min_messages": "warning",
        "log_line_prefix": "%m [%p] %q%u@%d ",
    }
