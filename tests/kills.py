"""`python -m tests.kills --minutes 10`: processes are killed in random order, under load, while months close.

Each kill is healed within 30 seconds without a command. At the end every acknowledged record is there once, every month is
closed and issued with the amounts that its usage comes to, and `period_verify` proves all of them.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import django
import httpx
import yaml

from tests.cli import PROJECT, Home

MONTHS = tuple(f"2026-{number:02}" for number in range(1, 10))
ALLOCATIONS, AT_A_TIME = 4_000, 500
"""Of each month and each of two teams: 8 devices for 2 h 37 min 13 s at 10.0000 an hour."""
SECONDS = 8 * 9433
PAUSE_SECONDS = (1.0, 6.0)


class Finance(threading.Thread):
    """Closes and issues one month after the other, each command again until it has succeeded."""

    def __init__(self, running: Any, until: float) -> None:
        super().__init__()
        self.running, self.until, self.issued, self.tried = running, until, list[str](), 0

    def run(self) -> None:
        for month in MONTHS:
            for command in ("period_close", "invoice_issue"):
                while not self._done(command, month):
                    time.sleep(0.5)
            self.issued.append(month)
            if time.monotonic() > self.until:
                return

    def _done(self, *command: str) -> bool:
        self.tried += 1
        home = self.running.home
        argv = [sys.executable, str(PROJECT / "manage.py"), *command]
        done = subprocess.run(argv, env=home.environment, cwd=home.path, capture_output=True, timeout=300, check=False)
        return done.returncode == 0


def main() -> None:
    """Run for so many minutes, or raise."""
    options = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked = options.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
    django.setup()  # what makes records knows models; everything else runs in processes of its own
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="suanpan-kills-") as folder:
        _run(Path(folder), asked.minutes * 60, random.Random(asked.seed))


def _run(folder: Path, seconds: float, dice: random.Random) -> None:
    from tests.factories.running import PROCESSES, Running, kill_and_await, nothing_is_lost

    running = Running(Home(folder))
    try:
        _fill(running)
        running.starts()
        end, kills = time.monotonic() + seconds, list[str]()
        finance = Finance(running, end)
        finance.start()
        while time.monotonic() < end:
            time.sleep(dice.uniform(*PAUSE_SECONDS))
            kills.append(dice.choice(list(PROCESSES)))
            kill_and_await(running, kills[-1])
        finance.join()
        running.stopping.set()
        running.load.join()
        nothing_is_lost(running)
        _amounts(running, finance.issued)
        running.home.run("period_verify", "--all")
        counted = ", ".join(f"{name} {kills.count(name)}" for name in PROCESSES)
        print(
            f"{len(kills)} kills ({counted}); {len(running.acknowledged)} records acknowledged, each there once;"
            f" {len(finance.issued)} months issued in {finance.tried} commands, all amounts right"
        )
    finally:
        running.ends()


def _fill(running: Any) -> None:
    """Prices, owners, and the GPU time of each month."""
    from tests.factories import SET_UP, allocation_record

    running.await_ready(120)
    price = {**SET_UP["price_versions"][0], "name": "2026", "valid_from": "2026-01-01T00:00:00+08:00"}
    path = running.home.path / "set-up.yaml"
    path.write_text(yaml.safe_dump({**SET_UP, "price_versions": [price]}))
    running.home.run("apply", str(path))
    token = running.home.run("token_create", "agent", "--scope", "usage:write").stdout.strip()
    with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", timeout=120) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        for month in MONTHS:
            records = [
                allocation_record(
                    number, allocation_id=f"{month}-{namespace}-{number}", pod_uid=f"{month}-{namespace}-{number}",
                    namespace=namespace, started_at=f"{month}-10T00:00:00Z", ended_at=f"{month}-10T02:37:13Z",
                    observed_until=f"{month}-10T02:37:13Z",
                )
                for namespace in ("nlp-train", "cv") for number in range(ALLOCATIONS)
            ]  # fmt: skip
            for first in range(0, len(records), AT_A_TIME):
                answer = client.post(
                    "/api/v1/usage/gpu-allocations", json={"allocations": records[first : first + AT_A_TIME]}
                )
                assert answer.json()["accepted"] == AT_A_TIME, answer.text


def _amounts(running: Any, months: list[str]) -> None:
    hours = (Decimal(ALLOCATIONS) * SECONDS / 3600).quantize(Decimal("0.000001"))
    expected = (hours * 10).quantize(Decimal("0.01"))
    token = running.home.run("token_create", "reader", "--scope", "invoices:read").stdout.strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", headers=headers, timeout=60) as client:
        rows = client.get("/api/v1/invoices").json()["results"]
    found = {month: [Decimal(row["total"]) for row in rows if row["period"] == month] for month in months}
    assert found == {month: [expected, expected] for month in months}, found


if __name__ == "__main__":
    main()
