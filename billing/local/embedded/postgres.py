"""Embedded PostgreSQL: made by initdb on first use, then started in the foreground on loopback."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from billing.local.embedded.account import Account
from billing.local.embedded.errors import EmbeddedError, log_since, log_size, start_failed
from billing.local.embedded.layout import Layout
from billing.local.embedded.ports import LOOPBACK
from billing.local.embedded.probes import postgres_answers
from billing.local.embedded.server import Server
from billing.runtime.atomic_file import folder_sync
from billing.runtime.home import secret

NAME = "postgres"
DATABASE = USER = "suanpan"
PASSWORD = "postgres-password"  # noqa: S105 -- the name of the secret
APPLICATION = "suanpan_app"
APPLICATION_PASSWORD = "postgres-application-password"  # noqa: S105 -- the name of the secret
_BUILTIN_LOCALE_SINCE = 17
_SHARED_MEMORY_BYTES = 256 * 1024 * 1024


class Postgres(Server):
    """Server that owns `postgres/` of a home. Committed data survive a kill of every process."""

    name = NAME
    title = "PostgreSQL"
    ready_seconds = 600.0  # recovery replays the log of a killed server, which may be long
    on_parent_death = signal.SIGINT
    stopping = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0))  # fast, then immediate shutdown

    def __init__(self, layout: Layout, account: Account, programs: Path, version: int) -> None:
        super().__init__(layout, account)
        self.programs = programs
        self.version = version

    def prepare(self, lock: int) -> None:
        """Create the cluster if there is none, and delete the pid file of a killed server.

        PostgreSQL would refuse to start if that pid now belonged to another process, as it soon does in containers. No
        server of ours can be alive here; a server started by hand holds no lock of ours, but works in its data directory.
        """
        if not (self.layout.data / "PG_VERSION").exists():
            self._make_cluster(lock)
        pid_file = self.layout.data / "postmaster.pid"
        if pid_file.exists():
            pid = pid_file.read_text().partition("\n")[0]
            if _works_in(pid, self.layout.data):
                raise EmbeddedError(f"process {pid}, not started by Suanpan, uses {self.layout.data}; stop it first")
            pid_file.unlink()

    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        argv = [str(self.programs / "postgres"), "-D", str(self.layout.data), "-p", str(self.port)]
        for name, value in _settings().items():
            argv += ["-c", f"{name}={value}"]
        return self.account.launch(argv, log=self.log, on_parent_death=self.on_parent_death, lock=lock)

    def answers(self) -> bool:
        """Return True if our own child is ready and the port answers; another program may sit on the port."""
        return self._pid_file_says_ready() and postgres_answers(self.port)

    def _pid_file_says_ready(self) -> bool:
        """Return True if postmaster.pid has our pid in line 1 and the status `ready` in line 8."""
        try:
            lines = (self.layout.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        ours = self.process is not None and lines[:1] == [str(self.process.pid)]
        return ours and len(lines) >= 8 and lines[7].strip() == "ready"

    def _make_cluster(self, lock: int) -> None:
        """Build the cluster beside and rename it: a home has none or a complete one, even after a power failure."""
        draft = self.layout.data.with_name("postgres.new")
        if draft.exists():
            shutil.rmtree(draft)
        if self.layout.data.exists():
            self._check_is_empty()
            self.layout.data.rmdir()
        draft.mkdir(mode=0o700)
        self.account.give(draft)
        self._initdb(draft, lock)
        self._create_database(draft, lock)
        draft.rename(self.layout.data)
        folder_sync(self.layout.data.parent)

    def _check_is_empty(self) -> None:
        """Refuse to make a cluster in the place of a damaged one: it would look as if nothing had ever been billed."""
        if found := next(self.layout.data.iterdir(), None):
            raise EmbeddedError(
                f"{self.layout.data} is damaged: it has {found.name} and no PG_VERSION; put it back from a backup of the"
                " home, or move it away and restore a dump into the new database (docs/operations.md, Backups)"
            )

    def _initdb(self, draft: Path, lock: int) -> None:
        locale = ["--locale=C.UTF-8"]
        if self.version >= _BUILTIN_LOCALE_SINCE:
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        with tempfile.NamedTemporaryFile("w", dir=draft.parent, prefix="password.") as password:
            password.write(secret(PASSWORD, self.layout.home))
            password.flush()
            self.account.give(Path(password.name))
            argv = ["initdb", "-D", str(draft), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password.name}"]
            self._run([*argv, "-E", "UTF8", *locale, "--no-instructions"], lock, None)

    def _create_database(self, draft: Path, lock: int) -> None:
        """Create the database in single-user mode, without connections. A statement ends with an empty line."""
        password = secret(APPLICATION_PASSWORD, self.layout.home)
        read, write = os.pipe()
        os.write(write, f"CREATE ROLE {APPLICATION} LOGIN PASSWORD '{password}';\n\nCREATE DATABASE {DATABASE};\n".encode())
        os.close(write)
        try:
            self._run(["postgres", "--single", "-j", "-D", str(draft), "postgres"], lock, read)
        finally:
            os.close(read)

    def _run(self, command: list[str], lock: int, stdin: int | None) -> None:
        """Run one of PostgreSQL's programs to its end. In single-user mode an error does not change its exit status."""
        log = self.layout.log("initdb")
        offset = log_size(log)
        argv = [str(self.programs / command[0]), *command[1:]]
        process = self.account.launch(argv, log=log, on_parent_death=signal.SIGTERM, lock=lock, stdin=stdin)
        status = process.wait()
        if status != 0 or any(word in log_since(log, offset) for word in ("ERROR:", "FATAL:", "PANIC:")):
            raise start_failed(f"PostgreSQL ({command[0]})", log, offset)


def _settings() -> dict[str, str | int]:
    """Return the settings. Durability is a promise, so fsync and synchronous_commit stay on whatever a benchmark shows."""
    return {
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",
        "max_connections": 300,
        "shared_buffers": "256MB",
        "effective_cache_size": "1GB",
        "work_mem": "16MB",
        "maintenance_work_mem": "128MB",
        "dynamic_shared_memory_type": _dynamic_shared_memory(),
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


def _dynamic_shared_memory() -> str:
    """Return the kind of shared memory: containers give /dev/shm 64 MB, which a query can fill; files have no limit."""
    try:
        free = os.statvfs("/dev/shm")  # noqa: S108 -- asked for its size only
    except OSError:
        return "mmap"
    return "posix" if free.f_bavail * free.f_frsize >= _SHARED_MEMORY_BYTES else "mmap"


def _works_in(pid: str, directory: Path) -> bool:
    try:
        return Path("/proc", pid, "cwd").samefile(directory)
    except OSError:
        return False
