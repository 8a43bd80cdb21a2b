"""A real Prometheus with the rules of the platform's chart, which scrapes web processes of a test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import yaml

from billing.local.process_list import free_port
from tests.charts import named, objects
from tests.prometheus.conftest import wait_until_ready

WINDOW = "[10m]"


@contextmanager
def watching(home: Path, *urls: str, shortened: bool = True, window: str = WINDOW) -> Iterator[str]:
    """Its address. shortened: a sign need not last (`for`) to fire. window: over how long rates are taken."""
    rules: dict[str, Any] = deepcopy(named(objects("suanpan", "everything"), "PrometheusRule", "suanpan")["spec"])
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = rule["expr"].replace(WINDOW, window)
        if shortened:
            rule["for"] = "0s"
    home.mkdir(exist_ok=True)
    (home / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    targets = {"targets": [url.removeprefix("http://") for url in urls], "labels": {"namespace": "billing"}}
    (home / "prometheus.yml").write_text(yaml.safe_dump({
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{
            "job_name": "suanpan", "static_configs": [targets], "scrape_interval": "10s", "scrape_timeout": "10s",
        }],
    }), encoding="utf-8")  # fmt: skip
    port = free_port()
    argv = [
        "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (home / "log.txt").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(argv, cwd=home, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}", server, home / "log.txt")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=60)


def firing(prometheus: str) -> set[str]:
    """Names of the alerts that fire now."""
    alerts = httpx.get(f"{prometheus}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def scraped(prometheus: str) -> bool:
    """Whether it has the metrics of a web process."""
    found = httpx.get(f"{prometheus}/api/v1/query", params={"query": "suanpan_database_up == 1"}, timeout=10).json()
    return bool(found["data"]["result"])
