"""Embedded broker: Valkey in memory only. Its loss costs nothing: the tasks to be done are in the database."""

import os
import signal
import subprocess
from pathlib import Path

from billing.local.embedded.account import Account
from billing.local.embedded.layout import Layout
from billing.local.embedded.ports import LOOPBACK
from billing.local.embedded.probes import valkey_answers
from billing.local.embedded.server import Server
from billing.runtime.home import secret

NAME = "broker"
PASSWORD = "broker-password"  # noqa: S105 -- the name of the secret


class Valkey(Server):
    """Server valkey-server (or redis-server) without any file of its own."""

    name = NAME
    title = "Valkey"
    ready_seconds = 30.0
    on_parent_death = signal.SIGTERM
    stopping = ((signal.SIGTERM, 5.0),)

    def __init__(self, layout: Layout, account: Account, program: Path) -> None:
        super().__init__(layout, account)
        self.program = program
        self.password = secret(PASSWORD, layout.home)

    def prepare(self, lock: int) -> None:
        """Do nothing: there are no files."""

    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        """Start the broker; the configuration goes through a pipe, so that no file and no process list has the password."""
        read, write = os.pipe()
        # fits into the pipe's buffer, so that the write cannot block
        os.write(write, self._configuration().encode())
        os.close(write)
        try:
            return self.account.launch(
                [str(self.program), "-"], log=self.log, on_parent_death=self.on_parent_death, lock=lock, stdin=read
            )
        finally:
            os.close(read)

    def answers(self) -> bool:
        """Return True if the port accepts our password."""
        return valkey_answers(self.port, self.password)

    def _configuration(self) -> str:
        lines = {
            "bind": LOOPBACK,
            "port": self.port,
            "requirepass": self.password,
            "dir": "/",
            "save": '""',
            "appendonly": "no",
            "daemonize": "no",
            "tcp-backlog": 128,
            "loglevel": "notice",
        }
        return "".join(f"{key} {value}\n" for key, value in lines.items())
