"""Real ClickHouse servers on loopback with ZooKeeper, for shards of two replicas: Debian's packages and a JRE.

Each process belongs to who started it and is ended by its number.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from billing.local.process_list import free_port

JARS: Final = Path("/usr/share/java")
CONFIG: Final = """<yandex><logger><level>warning</level><log>{d}/log</log><errorlog>{d}/err</errorlog></logger>
<listen_host>127.0.0.1</listen_host><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
<interserver_http_port>{inter}</interserver_http_port><interserver_http_host>127.0.0.1</interserver_http_host>
<path>{d}/data/</path><tmp_path>{d}/tmp/</tmp_path><user_files_path>{d}/fs/</user_files_path>
<format_schema_path>{d}/fs/</format_schema_path><max_concurrent_queries>50</max_concurrent_queries>
<mark_cache_size>50000000</mark_cache_size><timezone>UTC</timezone><users_config>users.xml</users_config>
<default_profile>default</default_profile><default_database>default</default_database>
<zookeeper><node><host>127.0.0.1</host><port>{zookeeper}</port></node><session_timeout_ms>4000</session_timeout_ms></zookeeper>
</yandex>"""
USERS: Final = """<yandex><profiles><default><max_threads>2</max_threads></default></profiles><users><default>
<password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default/></quotas></yandex>"""
SECONDS: Final = 90


def wait_for(address: str, log: Path) -> None:
    """Until somebody answers there."""
    for _ in range(SECONDS * 10):
        try:
            httpx.get(f"http://{address}/ping", trust_env=False)
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise RuntimeError(log.read_text()[-2000:])


class Replica:
    """A server of its own, which can be killed and started again with what it has on its disk."""

    def __init__(self, folder: Path, zookeeper: int) -> None:
        self.folder, self.zookeeper, self.port = folder, zookeeper, free_port()
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("data", "tmp", "fs"):
            (folder / name).mkdir(parents=True)
        (folder / "config.xml").write_text(
            CONFIG.format(d=folder, http=self.port, tcp=free_port(), inter=free_port(), zookeeper=zookeeper)
        )
        (folder / "users.xml").write_text(USERS)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                ["clickhouse-server", f"--config-file={self.folder}/config.xml"], cwd=self.folder, stdout=out, stderr=out
            )

    def wait(self) -> None:
        wait_for(self.address, self.folder / "err")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, statement: str) -> str:
        answer = httpx.post(f"http://{self.address}/", content=statement.encode(), timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.text.strip()


def healed(replica: Replica) -> None:
    """It runs again, if it was killed."""
    if replica.process is None:
        replica.start()
    replica.wait()
    _until_none(replica, "is_readonly OR is_session_expired")


def settled(replicas: list[Replica]) -> None:
    """All of them run again, and each has what any of them has: until then an insert may wait longer than its quorum may."""
    for replica in replicas:
        healed(replica)
    for replica in replicas:
        _until_none(replica, "inserts_in_queue > 0")


def _until_none(replica: Replica, condition: str) -> None:
    for _ in range(SECONDS * 10):
        if replica.ask(f"SELECT count() FROM system.replicas WHERE {condition}") == "0":
            return
        time.sleep(0.1)
    raise RuntimeError(f"{replica.address}: a table stays as it is, {condition}")


@contextmanager
def replicas(folder: Path, number: int) -> Iterator[list[Replica]]:
    """So many servers, and the ZooKeeper that they share."""
    port, home = free_port(), folder / "zookeeper"
    home.mkdir(parents=True)
    (home / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={home}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    jars = ":".join(str(path) for path in sorted(JARS.glob("*.jar")))
    with (home / "out").open("ab") as out:
        zookeeper = subprocess.Popen(
            ["java", "-Xmx128m", "-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg")],
            cwd=home, stdout=out, stderr=out,
        )  # fmt: skip
    found = [Replica(folder / f"replica-{place}", port) for place in range(number)]
    try:
        for _ in range(SECONDS * 10):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        for replica in found:
            replica.start()
        for replica in found:
            replica.wait()
        yield found
    finally:
        for replica in found:
            replica.kill()
        zookeeper.kill()
        zookeeper.wait()
        shutil.rmtree(folder, ignore_errors=True)
