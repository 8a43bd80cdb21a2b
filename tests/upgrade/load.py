"""Gateways that report to a database as a release left it."""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpx

from billing.backup.programs import server_connection
from tests.factories import token_record

BATCH = 50
ANSWERS = {(200, False), (503, True)}
"""Taken, or to come again at a time that the answer says."""


@dataclass
class Sender:
    """Reports batch after batch at half of what it could: after each answer it waits as long as that took."""

    url: str
    token: str
    first: int
    make: Callable[[int], dict[str, Any]] = token_record
    """A record of a number."""
    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: int = 0
    duplicates: int = 0
    answers: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Status and whether it says when to come again -> how often."""

    def run(self) -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=60) as client:
            while not self.over.is_set():
                began = time.monotonic()
                self.send(client)
                time.sleep(time.monotonic() - began)

    def send(self, client: httpx.Client) -> None:
        """One batch; without an acknowledgement the same one is the next."""
        records = [self.make(self.first + self.acknowledged + number) for number in range(BATCH)]
        answer = client.post(f"{self.url}/api/v1/usage/tokens", json=records)
        self.answers[answer.status_code, "Retry-After" in answer.headers] += 1
        if answer.status_code == httpx.codes.OK:
            self.duplicates += answer.json()["duplicates"]
            self.acknowledged += BATCH


@contextmanager
def sending(senders: Sequence[Sender]) -> Iterator[None]:
    """They report until the block ends."""
    threads = [threading.Thread(target=sender.run) for sender in senders]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        for sender in senders:
            sender.over.set()
        for thread in threads:
            thread.join()


def new_token(database: str) -> str:
    """As the release made one: its code is not here."""
    presented = f"spn_{secrets.token_urlsafe(32)}"
    with closing(server_connection(database, autocommit=True)) as ledger:
        ledger.execute(
            "INSERT INTO tenancy_apitoken (name, prefix, digest, scopes, source, created_at)"
            " VALUES ('load', %s, %s, ARRAY['usage:write'], '', now())",
            [presented[:8], sha256(presented.encode()).hexdigest()],
        )
    return presented


def stored(database: str) -> tuple[int, int]:
    """Records, and input tokens of all."""
    with closing(server_connection(database, autocommit=True)) as ledger:
        row = ledger.execute("SELECT count(*), sum(input_tokens)::bigint FROM token_entry").fetchone()
    assert row is not None
    return row[0], row[1]
