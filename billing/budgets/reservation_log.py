"""Holds on disk: appended as they are made and end, read back by the next process. A killed process forgets none.

One line of JSON per event, in segments of ten minutes; a segment goes when everything in it is over, so nothing is ever
rewritten. Written without fsync: if the machine itself goes down, holds of its last moments are lost, which is at most
what requests of those moments cost.
"""

import contextlib
import os
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec

from billing.budgets.counter import LONGEST_HOLD_SECONDS, Reservation

SEGMENT: Final = timedelta(minutes=10)
KEPT: Final = SEGMENT + timedelta(seconds=LONGEST_HOLD_SECONDS)


class _Event(msgspec.Struct, omit_defaults=True):
    id: str
    amount: str = ""
    budgets: tuple[int, ...] = ()
    until: datetime | None = None
    key: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Event).decode


class ReservationLog:
    """The segments of one process in a directory of their own."""

    def __init__(self, directory: Path, now: datetime) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._file, self._ends = -1, now
        self._turn(now)

    def read(self, now: datetime) -> list[Reservation]:
        """The holds that still count."""
        holds: dict[str, Reservation] = {}
        for path in sorted(self._directory.glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):  # the last line of a killed process may be torn
                    _apply(_decode(line), holds)
        return [hold for hold in holds.values() if hold.until > now]

    def remember(self, hold: Reservation, now: datetime) -> None:
        """Keep a hold."""
        if now >= self._ends:
            self._turn(now)
        key = hold.key.hex() if hold.key is not None else ""
        self._write(_Event(hold.id, str(hold.amount), hold.budgets, hold.until, key))

    def forget(self, identity: str) -> None:
        """Note that a hold ended before its time."""
        self._write(_Event(identity))

    def close(self) -> None:
        """Leave the segments as they are."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, event: _Event) -> None:
        os.write(self._file, _encode(event) + b"\n")

    def _turn(self, now: datetime) -> None:
        """Begin a segment and remove those in which everything is over."""
        self.close()
        name = f"{now:%Y%m%dT%H%M%S%f}.jsonl"
        self._file = os.open(self._directory / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._ends = now + SEGMENT
        oldest = f"{now - KEPT:%Y%m%dT%H%M%S%f}.jsonl"
        for path in self._directory.glob("*.jsonl"):
            if path.name < oldest:
                path.unlink()


def _apply(event: _Event, holds: dict[str, Reservation]) -> None:
    if event.until is None:
        holds.pop(event.id, None)
        return
    key = bytes.fromhex(event.key) if event.key else None
    holds[event.id] = Reservation(event.id, Decimal(event.amount), event.budgets, event.until, key)
