"""A network of two hosts: this one, and a namespace in which a server runs; the cable between them can be pulled."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.operations.postgres import ACCOUNT


class Cable:
    """Two ends: `here` and `there`."""

    def __init__(self) -> None:
        self.name = f"suanpan{os.getpid()}"[:15]
        net = f"10.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
        self.here, self.there = f"{net}.1", f"{net}.2"

    def pull(self) -> None:
        """From now on packets are lost, both ways and without a word."""
        run("ip", "-n", self.name, "link", "set", "there", "down")

    def plug_in(self) -> None:
        run("ip", "-n", self.name, "link", "set", "there", "up")

    def inside(self) -> list[str]:
        """What a command begins with that is to run there, as the account of the server."""
        account = pwd.getpwnam(ACCOUNT)
        ids = (f"--setuid={account.pw_uid}", f"--setgid={account.pw_gid}")
        return ["nsenter", f"--net=/run/netns/{self.name}", *ids]


@contextmanager
def cable() -> Iterator[Cable]:
    """It is gone with the block. It takes root."""
    assert os.geteuid() == 0, "a network namespace is made, which takes root"
    made = Cable()
    run("ip", "netns", "add", made.name)
    try:
        run("ip", "link", "add", made.name, "type", "veth", "peer", "name", "there", "netns", made.name)
        run("ip", "addr", "add", f"{made.here}/30", "dev", made.name)
        run("ip", "link", "set", made.name, "up")
        run("ip", "-n", made.name, "addr", "add", f"{made.there}/30", "dev", "there")
        run("ip", "-n", made.name, "link", "set", "lo", "up")
        made.plug_in()
        yield made
    finally:
        run("ip", "netns", "delete", made.name)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"})
