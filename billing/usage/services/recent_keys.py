"""Keys that were written lately, as far as the processes of one machine remember: what the ledger has to be asked for.

Repeats mostly follow soon after the first report. Looking for every key before it is written costs more than half of
what writing it costs, so only those are looked for of which this memory says that they may be known. It decides nothing:
it may know too much, then the ledger is asked in vain, or too little, then the primary key refuses the transaction and
it is repeated after a look for all. The memory is a file that all processes map: each of many slots keeps marks of the
last four keys that came to it, so that it never fills, forgets a key only after four others came to its slot, and takes
one key for another once in 8,192 times.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLOTS: Final = 2**21
SLOT_BYTES: Final = 8
_MARK_BITS: Final = 16
_MARK_FROM_BIT: Final = 40
_NEVER_ZERO: Final = 1
_SLOT: Final = 2 ** (8 * SLOT_BYTES) - 1


class RecentKeys:
    """The memory in the file `path`.  Raises OSError where it cannot be made or written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, SLOTS * SLOT_BYTES)
            memory = mmap.mmap(descriptor, SLOTS * SLOT_BYTES)
        finally:
            os.close(descriptor)
        self._slots = np.frombuffer(memory, np.uint64)
        self._one_by_one = memoryview(memory).cast("Q")

    def add(self, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Remember (n, 16) bytes; says of each whether it may have been added before.

        Processes that do so at the same time may lose each other's marks, of a few keys.
        """
        slots, marks = _places(keys)
        known = self._have(slots, marks)
        new = np.flatnonzero(~known)
        slots, marks = slots[new], marks[new]
        self._slots[slots] = self._slots[slots] << np.uint64(_MARK_BITS) | marks
        together = new[~self._have(slots, marks)]  # of two in one slot only one was written
        self.add_few(map(bytes, keys[together]))
        return known

    def _have(self, slots: NDArray[np.uint64], marks: NDArray[np.uint16]) -> NDArray[np.bool_]:
        kept = self._slots[slots].view(np.uint16).reshape(-1, SLOT_BYTES * 8 // _MARK_BITS)
        found: NDArray[np.bool_] = (kept == marks[:, np.newaxis]).any(axis=1)
        return found

    def add_few(self, keys: Iterable[bytes]) -> None:
        """Remember so few keys that arrays would cost more than they spare."""
        for key in keys:
            end = int.from_bytes(key[8:], "little")
            mark = end >> _MARK_FROM_BIT & 0xFFFF | _NEVER_ZERO
            kept = self._one_by_one[end % SLOTS]
            if kept & 0xFFFF != mark:
                self._one_by_one[end % SLOTS] = (kept << _MARK_BITS | mark) & _SLOT


def _places(keys: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint16]]:
    """Slot and mark of each key. The end of a key is random, or a hash, whatever its id is like."""
    ends = np.ascontiguousarray(keys[:, 8:]).view("<u8").ravel()
    marks = (ends >> np.uint64(_MARK_FROM_BIT)).astype(np.uint16) | np.uint16(_NEVER_ZERO)
    return ends % np.uint64(SLOTS), marks
