"""Follows the database for the budget check, in a process of its own, so that no query ever delays an answer.

Over one connection it gets the names of records to look for, and sends what changed: a whole snapshot where anything but
counters did, counters where a refresh brought new ones, and the records that have landed in the ledger.
"""

import logging
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from typing import Final

from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from billing.budgets.counter import BudgetLine, Snapshot
from billing.budgets.snapshot import counters_read, landed_among, newest_generation, snapshot_read

EVERY_SECONDS: Final = 0.5
ALL_EVERY_SECONDS: Final = 4.0
MOST_KEYS: Final = 5_000
FORGOTTEN_AFTER_SECONDS: Final = 3600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whole:
    """Everything anew."""

    snapshot: Snapshot


@dataclass(frozen=True)
class Counters:
    """New counters, all else as before."""

    budgets: Sequence[BudgetLine]


@dataclass(frozen=True)
class Landed:
    """Records that are in the ledger, seen when `generation` was the newest refresh begun."""

    keys: Sequence[bytes]
    generation: int


class WaitingKeys:
    """Names of records to look for: often while they are new, ever less often later, for an hour."""

    def __init__(self) -> None:
        self._since: dict[bytes, tuple[float, float]] = {}

    def add(self, keys: Sequence[bytes], now: float) -> None:
        """Look for these, too."""
        for key in keys:
            self._since.setdefault(key, (now, now))

    def due(self, now: float) -> list[bytes]:
        """Which to look for now."""
        due: list[bytes] = []
        for key, (since, at) in list(self._since.items()):
            if now - since > FORGOTTEN_AFTER_SECONDS:
                del self._since[key]
            elif at <= now and len(due) < MOST_KEYS:
                due.append(key)
                self._since[key] = (since, now + (now - since) / 4)
        return due

    def found(self, keys: Sequence[bytes]) -> None:
        """No longer look for these."""
        for key in keys:
            self._since.pop(key, None)


class Follower:
    """One process's knowledge of what was sent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting = WaitingKeys()
        self._sent = b""
        self._generation = -1
        self._all_at = float("-inf")

    def run(self) -> None:
        """Until the other side is gone. A database that is away only makes answers older."""
        while True:
            try:
                self._listen(EVERY_SECONDS)
                self._look(timezone.now(), time.monotonic())
            except DatabaseError as error:
                log.warning("counters not read: %s", str(error).splitlines()[0])
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return

    def _listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._connection.poll(max(0.0, until - time.monotonic())):
            self._waiting.add(self._connection.recv(), time.monotonic())

    def _look(self, now: datetime, ticks: float) -> None:
        close_old_connections()
        keys = self._waiting.due(ticks)
        if keys:
            seen, generation = landed_among(keys)
            self._waiting.found(seen)
            if seen:
                self._connection.send(Landed(seen, generation))
        generation = newest_generation()
        if ticks - self._all_at >= ALL_EVERY_SECONDS:
            self._all_at = ticks
            self._send_whole(now)
        elif generation != self._generation and self._sent:
            self._connection.send(Counters(counters_read(now)))
        self._generation = generation

    def _send_whole(self, now: datetime) -> None:
        """Only counters, where nothing else changed: a large snapshot takes long to take over."""
        snapshot = snapshot_read(now)
        if snapshot is None:
            return
        fixed = pickle.dumps((snapshot.currency, snapshot.consumers, snapshot.prices, snapshot.grants))
        self._connection.send(Counters(snapshot.budgets) if fixed == self._sent else Whole(snapshot))
        self._sent = fixed
