"""A real Prometheus on loopback over series of the tests, one per module; it ends with them, by its own pid."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from billing.local.process_list import free_port
from tests.prometheus.open_metrics import OpenMetrics


@pytest.fixture(scope="module")
def prometheus_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[OpenMetrics], str]]:
    """Give series, get the address of a Prometheus that holds them."""
    with ExitStack() as stack:
        yield lambda series: stack.enter_context(running(series, tmp_path_factory.mktemp("prometheus")))


@contextmanager
def running(series: OpenMetrics, home: Path) -> Iterator[str]:
    series.write(home / "series.txt")
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h", "series.txt", "data"]
    subprocess.run(blocks, cwd=home, check=True, capture_output=True)
    (home / "prometheus.yml").write_text("{}\n", encoding="utf-8")
    port = free_port()
    with (home / "log.txt").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [
                "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                "--storage.tsdb.retention.time=3650d", f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=home, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            wait_until_ready(f"http://127.0.0.1:{port}", server, home / "log.txt")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=60)


def wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/-/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(f"Prometheus is not ready: {log.read_text(encoding='utf-8')[-2000:]}")
