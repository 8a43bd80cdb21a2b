"""Eight clients report the same requests in overlapping, shuffled, repeated batches, while all is killed at random: the web
process, its workers, Celery workers and the processes in which they fold.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from billing.runtime.home import PROJECT
from billing.tenancy.tokens import api_token_create
from billing.usage import tasks
from billing.usage.store.proofs import rollup_difference
from metering.intervals import Interval
from tests.factories import token_record
from tests.factories.servers import WebProcess, environment, web_process
from tests.stored_rows import query, token_events

CLIENTS, KEYS = 8, 3000
VICTIMS = {"web": 2, "worker": 2, "task": 2, "web worker": 5}
"""How often each has to be killed before the clients may end."""
PAUSE_SECONDS = 0.3
START = datetime(2026, 10, 15, tzinfo=UTC)
DAY = Interval(START, START + timedelta(days=1))
BIN = Path(sys.executable).parent
GIVE_UP_SECONDS = 300


def record(key: int) -> dict[str, Any]:
    """The same content for a key from every client; every other one is numbered, which is written in another way."""
    at = START + timedelta(seconds=key * 20)
    number = None if key % 2 else key // 2
    return token_record(
        key, time=at.isoformat(), consumer=f"c-{key % 7}", output_tokens=100 + key, sequence=number, sequence_run="r"
    )


class Client(threading.Thread):
    """Sends batches until it is stopped, each until it is acknowledged: the same body after any failure."""

    def __init__(self, number: int, url: str, token: str, enough: threading.Event, give_up: threading.Event) -> None:
        super().__init__()
        self.dice, self.enough, self.give_up = random.Random(number), enough, give_up
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=20)
        self.acknowledged: set[int] = set()
        self.accepted = self.failures = 0
        self.untrue: list[str] = []

    def run(self) -> None:
        while not self.enough.is_set():
            keys = self.dice.choices(range(KEYS), k=self.dice.choice((1, 40, 250)))
            body = json.dumps([record(key) for key in keys]).encode()
            while not self.give_up.is_set() and not self.sent(body, keys):
                time.sleep(self.dice.uniform(0, 0.1))
            if self.dice.random() < 0.3:
                self.sent(body, keys)  # repeated for no reason
            time.sleep(self.dice.uniform(0, PAUSE_SECONDS))
        self.http.close()

    def sent(self, body: bytes, keys: list[int]) -> bool:
        try:
            answer = self.http.post("/api/v1/usage/tokens", content=body)
        except httpx.TransportError:
            self.failures += 1
            return False
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self.failures += 1
            return False
        said = answer.json()
        if answer.status_code != httpx.codes.OK or said["accepted"] + said["duplicates"] != len(keys):
            self.untrue.append(f"{answer.status_code} {said}")
        self.accepted += said.get("accepted", 0)
        self.acknowledged |= set(keys)
        return True


@pytest.fixture
def web(transactional_db: None) -> Iterator[WebProcess]:
    with web_process(workers=2) as process:
        yield process


def stored() -> set[int]:
    rows = [int(name.removeprefix("req-")) for (name,) in query(f"SELECT id FROM {token_events()}")]
    assert len(rows) == len(set(rows)), "one row per key"
    return set(rows)


def arrived() -> set[int]:
    """Numbers of which the ledger says that they arrived."""
    numbers = [number for (number,) in query("SELECT generate_series(first, last) FROM token_sequence_island")]
    assert len(numbers) == len(set(numbers))
    return set(numbers)


class Worker:
    """A real Celery worker with two processes, which folds what ingest appends."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [str(BIN / "celery"), "--quiet", "-A", "billing.settings.celery", "worker", "--concurrency", "2", "--loglevel",
             "critical"],
            env={**environment(), "PYTHONWARNINGS": "ignore"}, cwd=PROJECT, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def children(self) -> list[int]:
        """The processes in which tasks run."""
        return [int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def kill(self) -> None:
        """At once and all of it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def fold() -> None:
    """Ask the workers to fold, as the scheduler does."""
    tasks.rollups_fold.delay()
    tasks.sequences_fold.delay()


def unfolded() -> int:
    ((number,),) = query(
        """SELECT (SELECT count(*) FROM token_hour_delta) + (SELECT count(*) FROM token_sequence)
                - (SELECT count(*) FROM token_sequence_island)"""
    )
    return int(number)


def test_whatever_is_killed_every_key_is_one_row_and_every_answer_was_true(web: WebProcess) -> None:
    _, token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    enough, give_up, kills = threading.Event(), threading.Event(), Counter[str]()
    clients = [Client(number, web.url, token, enough, give_up) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        _kill_at_random(web, clients, kills)
        web.keep()
    finally:
        enough.set()
        for client in clients:
            client.join(timeout=60)
        give_up.set()
    assert not any(client.is_alive() for client in clients)
    _check(clients)
    assert kills >= Counter(VICTIMS)
    assert [client.untrue for client in clients] == [[]] * CLIENTS
    assert sum(client.accepted for client in clients) <= len(stored())
    assert sum(client.failures for client in clients) > 0, "something was killed while it worked"
    assert arrived() == {key // 2 for key in stored() if key % 2 == 0}
    assert query(f"SELECT sum(output_tokens) FROM {token_events()}") == [(sum(100 + key for key in stored()),)]
    _folds_on()
    assert set(rollup_difference(DAY).values()) == {0}


def _kill_at_random(web: WebProcess, clients: list[Client], kills: Counter[str]) -> None:
    """Until each victim was killed often enough; what the clients got is looked for after each kill."""
    dice, worker, deadline = random.Random(7), Worker(), time.monotonic() + GIVE_UP_SECONDS
    try:
        while (left := list((Counter(VICTIMS) - kills).elements())) and time.monotonic() < deadline:
            time.sleep(dice.uniform(0.1, 0.5))
            web.keep()
            fold()
            victim = dice.choice(left)
            if victim == "web":
                web.kill()
                web.start()
                kills[victim] += 1
            elif victim == "worker":
                worker.kill()
                worker = Worker()
                kills[victim] += 1
            else:
                kills[victim] += _kill_one(dice, worker.children() if victim == "task" else web.workers())
            _check(clients)
    finally:
        worker.kill()


def _check(clients: list[Client]) -> None:
    acknowledged = set().union(*(set(client.acknowledged) for client in clients))
    assert acknowledged <= stored(), "what was acknowledged is there"
    assert set(rollup_difference(DAY).values()) == {0}, "roll-up = sum of rows, at every moment"
    assert {key // 2 for key in acknowledged if key % 2 == 0} <= arrived(), "and so are their numbers"


def _folds_on() -> None:
    """A worker that is started afterwards folds all that the killed ones left."""
    worker, deadline = Worker(), time.monotonic() + GIVE_UP_SECONDS
    try:
        while unfolded():
            assert time.monotonic() < deadline, "nobody folds"
            fold()
            time.sleep(0.3)
    finally:
        worker.kill()


def _kill_one(dice: random.Random, processes: list[int]) -> int:
    if not processes:
        return 0
    os.kill(dice.choice(processes), signal.SIGKILL)
    return 1
