"""Keys that were written lately, as far as the processes of one machine remember: what the ledger has to be asked for.

Repeats mostly follow soon after the first report. Looking for every key before it is written costs more than half of
what writing it costs, so only those are looked for of which this memory says that they may be known. It decides nothing:
it may know too much, then the ledger is asked in vain, or too little, then the primary key refuses the transaction and
it is repeated after a look for all. The memory is a file that all processes map: each of many slots keeps a mark of the
last key that came to it, so that it never fills and takes one key for another once in 32,768 times.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLOTS: Final = 2**23
MARK_BYTES: Final = 2
_MARK_FROM_BIT: Final = 40
_NEVER_ZERO: Final = 1


class RecentKeys:
    """The memory in the file `path`.  Raises OSError where it cannot be made or written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, SLOTS * MARK_BYTES)
            memory = mmap.mmap(descriptor, SLOTS * MARK_BYTES)
        finally:
            os.close(descriptor)
        self._marks = np.frombuffer(memory, np.uint16)
        self._one_by_one = memoryview(memory).cast("H")

    def may_know(self, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """For each of (n, 16) bytes whether it may have been added."""
        slots, marks = _places(keys)
        known: NDArray[np.bool_] = self._marks[slots] == marks
        return known

    def add(self, keys: NDArray[np.uint8]) -> None:
        """Remember (n, 16) bytes. Processes that do so at the same time do not disturb each other."""
        slots, marks = _places(keys)
        self._marks[slots] = marks

    def add_few(self, keys: Iterable[bytes]) -> None:
        """The same for so few keys that arrays would cost more than they spare."""
        for key in keys:
            end = int.from_bytes(key[8:], "little")
            self._one_by_one[end % SLOTS] = end >> _MARK_FROM_BIT & 0xFFFF | _NEVER_ZERO


def _places(keys: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint16]]:
    """Slot and mark of each key. The end of a key is random, or a hash, whatever its id is like."""
    ends = np.ascontiguousarray(keys[:, 8:]).view("<u8").ravel()
    marks = (ends >> np.uint64(_MARK_FROM_BIT)).astype(np.uint16) | np.uint16(_NEVER_ZERO)
    return ends % np.uint64(SLOTS), marks
