"""Eight clients report the same requests in overlapping, shuffled, repeated batches while everything is killed at random."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.db import connection

from billing.tenancy.tokens import api_token_create
from billing.usage.token_sums import rollup_difference
from metering.intervals import Interval
from tests.factories import token_record
from tests.integration.web_process import ROOT, WebProcess, environment, web_process

CLIENTS, KEYS, BATCHES = 8, 3000, 16
START = datetime(2026, 10, 15, tzinfo=UTC)
DAY = Interval(START, START + timedelta(days=1))
FOLDING = "import time, billing.usage.services as s\nwhile True: s.rollups_fold(); time.sleep(0.05)"
GIVE_UP_SECONDS = 50


def record(key: int) -> dict[str, Any]:
    """The same content for a key from every client."""
    at = START + timedelta(seconds=key * 20)
    return token_record(key, time=at.isoformat(), consumer=f"c-{key % 7}", output_tokens=100 + key)


class Client(threading.Thread):
    """Sends its batches until each is acknowledged, the way a gateway does: the same body again after any failure."""

    def __init__(self, number: int, url: str, token: str, end: threading.Event) -> None:
        super().__init__()
        self.dice, self.url, self.end = random.Random(number), url, end
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.acknowledged: set[int] = set()
        self.accepted = self.failures = 0
        self.untrue: list[str] = []

    def run(self) -> None:
        for _ in range(BATCHES):
            keys = self.dice.choices(range(KEYS), k=self.dice.choice((1, 40, 250)))
            body = json.dumps([record(key) for key in keys]).encode()
            while not self.end.is_set() and not self.sent(body, keys):
                time.sleep(self.dice.uniform(0, 0.1))
            if self.dice.random() < 0.3:
                self.sent(body, keys)  # repeated for no reason

    def sent(self, body: bytes, keys: list[int]) -> bool:
        try:
            answer = httpx.post(f"{self.url}/api/v1/usage/tokens", content=body, headers=self.headers, timeout=20)
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
    with web_process() as process:
        yield process


def stored() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM token_event")
        rows = [int(row[0].removeprefix("req-")) for row in cursor.fetchall()]
    assert len(rows) == len(set(rows)), "one row per key"
    return set(rows)


def folder() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"import django; django.setup()\n{FOLDING}"], env=environment(), cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_whatever_is_killed_every_key_is_one_row_and_every_answer_was_true(web: WebProcess) -> None:
    _, token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    end, dice, deadline = threading.Event(), random.Random(7), time.monotonic() + GIVE_UP_SECONDS
    clients = [Client(number, web.url, token, end) for number in range(CLIENTS)]
    folding, kills, checkpoints = folder(), 0, 0
    for client in clients:
        client.start()
    try:
        while any(client.is_alive() for client in clients) and time.monotonic() < deadline:
            time.sleep(dice.uniform(0.1, 0.5))
            kills += 1
            victim = dice.random()
            if victim < 0.15:
                web.kill()
                web.start()
            elif victim < 0.3:
                folding.kill()
                folding.wait()
                folding = folder()
            elif workers := web.workers():
                os.kill(dice.choice(workers), signal.SIGKILL)
            told = set().union(*(set(client.acknowledged) for client in clients))
            assert told <= stored(), "what was acknowledged is there"
            assert set(rollup_difference(DAY).values()) == {0}, "roll-up = sum of rows, at every moment"
            checkpoints += 1
    finally:
        end.set()
        for client in clients:
            client.join(timeout=60)
        folding.kill()
        folding.wait()
    assert not any(client.is_alive() for client in clients)
    told = set().union(*(client.acknowledged for client in clients))
    assert [client.untrue for client in clients] == [[]] * CLIENTS
    assert told <= stored()
    assert sum(client.accepted for client in clients) <= len(stored())
    assert set(rollup_difference(DAY).values()) == {0}
    assert min(kills, checkpoints) >= 5
    assert sum(client.failures for client in clients) > 0, "something was killed while it worked"
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(output_tokens) FROM token_event")
        assert cursor.fetchone()[0] == sum(100 + key for key in stored())
