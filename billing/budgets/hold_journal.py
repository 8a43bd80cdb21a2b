"""Holds on disk: appended as they are made and end, read back by the next process. A killed process forgets none.

One line of JSON per event. Written without fsync: if the machine itself goes down, holds of its last moments are lost,
which is at most what requests of those moments cost.
"""

import contextlib
import os
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import msgspec

from billing.budgets.counter import Hold

LARGEST = 32 * 1024 * 1024


class _Event(msgspec.Struct, omit_defaults=True):
    id: str
    amount: str = ""
    budgets: list[int] = []
    until: datetime | None = None
    key: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Event).decode


class HoldJournal:
    """The file of one process; opening it keeps only holds that still count."""

    def __init__(self, path: Path, now: datetime) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._live = {hold.id: hold for hold in _read(path) if hold.until > now}
        self._size = 0
        self._file = -1
        self._rewrite()

    @property
    def holds(self) -> Iterable[Hold]:
        """What counts."""
        return list(self._live.values())

    def remember(self, hold: Hold) -> None:
        """Keep a hold."""
        self._live[hold.id] = hold
        self._write(_line(hold))

    def forget(self, identity: str) -> None:
        """Note its end."""
        if self._live.pop(identity, None) is not None:
            self._write(_encode(_Event(identity)) + b"\n")

    def close(self) -> None:
        """Leave the file as it is."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes) -> None:
        os.write(self._file, line)
        self._size += len(line)
        if self._size > LARGEST:
            self._rewrite()

    def _rewrite(self) -> None:
        """Only what counts, in a new file that takes the place of the old one."""
        draft = self._path.with_suffix(".new")
        draft.write_bytes(b"".join(_line(hold) for hold in self._live.values()))
        self.close()
        draft.replace(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._size = 0


def _line(hold: Hold) -> bytes:
    key = hold.key.hex() if hold.key is not None else ""
    return _encode(_Event(hold.id, str(hold.amount), list(hold.budgets), hold.until, key)) + b"\n"


def _read(path: Path) -> list[Hold]:
    holds: dict[str, Hold] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with contextlib.suppress(msgspec.DecodeError):  # the last line of a killed process may be torn
            event = _decode(line)
            if event.until is None:
                holds.pop(event.id, None)
            else:
                key = bytes.fromhex(event.key) if event.key else None
                holds[event.id] = Hold(event.id, Decimal(event.amount), tuple(event.budgets), event.until, key)
    return list(holds.values())
