"""A standalone Spark cluster on loopback, as processes that a test starts and ends."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark

from billing.local.process_list import free_port

HOME = Path(pyspark.__file__).parent
SECONDS = 120
PARTITIONS = 200
DEFAULTS = f"""spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 512m
spark.executor.memory 512m
spark.cores.max 2
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 120s
spark.sql.shuffle.partitions {PARTITIONS}
spark.sql.adaptive.coalescePartitions.enabled false
spark.eventLog.enabled true
spark.eventLog.rolling.enabled false
spark.eventLog.compress false
spark.eventLog.dir {{events}}
"""
"""Both workers compute from the first task on; many short tasks, so that one can be killed between the first and the last;
each application logs its events.
"""


@dataclass
class Cluster:
    """Where its master is, its processes, each the leader of a group with the executors that it started, and where
    applications log their events.
    """

    master: str
    status: str
    workers: list[subprocess.Popen[bytes]]
    logs: Path

    def state(self) -> dict[str, Any]:
        with urlopen(self.status, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def alive(self) -> list[dict[str, Any]]:
        return [worker for worker in self.state()["workers"] if worker["state"] == "ALIVE"]

    def events(self, application: str) -> list[dict[str, Any]]:
        """What an application has logged up to now; the last line of one that runs may not be whole."""
        found = [path.read_text().rpartition("\n")[0] for path in self.logs.glob(f"{application}*")]
        return [json.loads(line) for text in found for line in text.splitlines()]


def end(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started; one that has ended already is none's business."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def spark_cluster(folder: Path, logs: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers of one core each.

    `logs`: one folder for all clusters of a process, whose driver reads the settings only once.
    """
    conf = folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS.format(events=logs.as_uri()))
    settings = {"SPARK_HOME": str(HOME), "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ |= settings  # the driver is in this process
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    processes = [_started(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port),
                          "--webui-port", str(page))]  # fmt: skip
    try:
        for number in range(workers):
            processes.append(
                _started(folder, f"worker{number}", "worker.Worker", master, "--host", "127.0.0.1", "--cores", "1",
                         "--memory", "600m", "--webui-port", str(free_port()), "--work-dir", str(folder / f"work{number}"))
            )  # fmt: skip
        cluster = Cluster(master, f"http://127.0.0.1:{page}/json/", processes[1:], logs)
        wait_until(lambda: len(cluster.alive()) == workers)
        yield cluster
    finally:
        for process in reversed(processes):
            end(process)
        for name in settings:
            del os.environ[name]


def _started(folder: Path, name: str, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "SPARK_DAEMON_MEMORY": "256m"},
        )  # fmt: skip


def wait_until(holds: Any) -> None:
    """Raises TimeoutError where something does not come to hold; a page that has no JSON yet does not."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            if holds():
                return
        except (OSError, json.JSONDecodeError):
            pass
        time.sleep(0.2)
    raise TimeoutError
