"""`python -m tests.kills --minutes 10`: processes are killed in random order, under load, while months close.

Each kill is healed within 30 seconds without a command: all processes run again and reports are acknowledged. A month is
closed and issued by one request each, which is done however many of the processes at work on it are killed. At the end
every acknowledged record is there once, every month is issued with the amounts that its usage comes to, and
`period_verify` proves all of them. Kills of an agent and of its outbox are in tests/agent and tests/process/test_outbox.py.
"""

import argparse
import contextlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any

import django
import httpx

from tests.cli import Home

MONTHS = tuple(f"{year}-{number:02}" for year in range(2020, 2026) for number in range(1, 13))
A_MINUTE = 7
"""Months that are closed and issued in it."""
INVOICES = "/api/v1/invoices?page_size=1000"
TEAMS, ALLOCATIONS, AT_A_TIME = 2, 2_000, 500
"""Of each month and each of two teams: 8 devices for 2 h 37 min 13 s at 10.0000 an hour."""
SECONDS = 8 * 9433
PAUSE_SECONDS = (1.0, 6.0)
STEP_SECONDS = (0.0, 0.5)
"""After so long a step of a month is hit by a kill."""
OPERATION_SECONDS = 300
NAME, PASSWORD = "finance", "an abacus has beads"


class Finance(threading.Thread):
    """Closes and issues one month after the other on the portal: presses each button until it is taken, and then waits.

    Presses the next one when a kill is near (`near`), so that kills hit months that are being closed.
    """

    def __init__(self, running: Any, until: float, months: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.running, self.until, self.months = running, until, months
        self.issued, self.seconds, self.near = list[str](), list[float](), threading.Semaphore(0)
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised again by `done`
            self.fault = error

    def done(self) -> None:
        """Wait for the last month, and raise what went wrong."""
        self.near.release(2)
        self.join()
        if self.fault is not None:
            raise self.fault

    def _work(self) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.running.port}", timeout=10) as client:
            self._until_answered(client, "POST", "/login/", login=NAME, password=PASSWORD)
            for month in self.months:
                for kind, is_done in (("close", self._is_closed), ("issue", self._is_issued)):
                    self.near.acquire()
                    began = time.monotonic()
                    self._until_answered(client, "POST", f"/close/{month}/operations/", kind=kind)
                    while not is_done(client, month):
                        late = time.monotonic() > began + OPERATION_SECONDS
                        assert not late, f"{kind} of {month} is not done: {self._operations()}"
                        time.sleep(0.5)
                    self.seconds.append(time.monotonic() - began)
                self.issued.append(month)
                if time.monotonic() > self.until:
                    return

    def _is_closed(self, client: httpx.Client, month: str) -> bool:
        period = self._until_answered(client, "GET", f"/api/v1/periods/{month}").json()
        return str(period["status"]) == "closed"

    def _is_issued(self, client: httpx.Client, month: str) -> bool:
        rows = self._until_answered(client, "GET", INVOICES).json()["results"]
        return len([row for row in rows if row["period"] == month]) == TEAMS

    def _operations(self) -> str:
        told = "Operation.objects.values_list('kind', 'month', 'status', 'attempts', 'message')"
        command = f"from billing.invoices.models import Operation; print(*{told})"
        return str(self.running.home.run("shell", "--command", command).stdout)

    def _until_answered(self, client: httpx.Client, method: str, path: str, **fields: str) -> httpx.Response:
        """As somebody does who presses again while the page does not come."""
        deadline = time.monotonic() + OPERATION_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if "csrftoken" not in client.cookies:
                    client.get("/login/")
                form = {"data": {**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"]}} if fields else {}
                answer = client.request(method, path, **form)  # type: ignore[arg-type]
                if answer.status_code in (200, 302):
                    return answer
            assert time.monotonic() < deadline, path
            time.sleep(0.5)


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
    from tests.factories.running import PROCESSES, Running, kill_and_await, records_lost_and_double

    running = Running(Home(folder))
    try:
        months = MONTHS[: ceil(seconds / 60 * A_MINUTE)]
        _fill(running, months)
        running.starts()
        end, kills = time.monotonic() + seconds, list[tuple[str, float]]()
        finance = Finance(running, end, months)
        finance.start()
        while time.monotonic() < end:
            for name in dice.sample(list(PROCESSES), len(PROCESSES)):  # each of them, in another order each time
                time.sleep(dice.uniform(*PAUSE_SECONDS))
                finance.near.release()
                time.sleep(dice.uniform(*STEP_SECONDS))
                kills.append((name, kill_and_await(running, name)))
        finance.done()
        running.stopping.set()
        running.load.join()
        lost, double = records_lost_and_double(running)
        _say(running, kills, finance, lost, double)
        assert (lost, double) == (0, 0)
        _amounts(running, finance.issued)
        running.home.run("period_verify", "--all")
        print("all amounts are right, and period_verify holds")
    finally:
        running.ends()


def _say(running: Any, kills: list[tuple[str, float]], finance: Finance, lost: int, double: int) -> None:
    from tests.factories.running import MENDED_SECONDS, PROCESSES

    for name in PROCESSES:
        took = sorted(of for killed, of in kills if killed == name)
        print(f"{name}: {len(took)} kills" + (f", healed in {took[0]:.1f} to {took[-1]:.1f} s" if took else ""))
    longest = max(took for _, took in kills)
    print(f"{len(kills)} kills, all healed within {longest:.1f} s; {MENDED_SECONDS:.0f} s are allowed")
    print(f"{len(running.acknowledged)} records acknowledged: {lost} lost, {double} double")
    longest = max(finance.seconds)
    print(f"{len(finance.issued)} months issued, each step asked for once, hit by a kill, done in {longest:.1f} s at most")


def _fill(running: Any, months: Sequence[str]) -> None:
    """Prices, owners, and the GPU time of each month."""
    from tests.factories import SET_UP, allocation_record

    price = {**SET_UP["price_versions"][0], "name": "2020", "valid_from": "2020-01-01T00:00:00+08:00"}
    owners = [{**owner, "valid_from": "2020-01-01"} for owner in SET_UP["ownership"]]
    running.set_up(price_versions=[price], ownership=owners)
    person = f"from django.contrib.auth.models import User; User.objects.create_superuser({NAME!r}, password={PASSWORD!r})"
    running.home.run("shell", "--command", person)
    token = running.home.run("token_create", "agent", "--scope", "usage:write").stdout.strip()
    with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", timeout=120) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        for month in months:
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
    amount = (hours * 10).quantize(Decimal("0.01"))
    token = running.home.run("token_create", "reader", "--scope", "invoices:read").stdout.strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{running.port}", headers=headers, timeout=60) as client:
        rows = client.get(INVOICES).json()["results"]
    found = {month: [Decimal(row["total"]) for row in rows if row["period"] == month] for month in months}
    assert found == {month: [amount] * TEAMS for month in months}, found


if __name__ == "__main__":
    main()
