"""Keys that were written lately, as far as the processes of one machine remember: what the ledger has to be asked for.

Repeats mostly follow soon after the first report. Looking for every key before it is written costs more than half of
what writing it costs, so only those are looked for of which this memory says that they may be known. It decides nothing:
it may know too much, then the ledger is asked in vain, or too little, then the primary key refuses the transaction and
it is repeated after a look for all. The memory is a file that all processes map, a byte for each of many slots.
"""

import mmap
import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

SLOTS: Final = 2**24
MOST_ADDED: Final = SLOTS // 16
"""How many keys a process adds before it empties the memory; with two processes, so many slots in eight are taken."""


class RecentKeys:
    """The memory in the file `path`.  Raises OSError where it cannot be made or written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, SLOTS)
            self._slots = np.frombuffer(mmap.mmap(descriptor, SLOTS), np.uint8)
        finally:
            os.close(descriptor)
        self._added = 0

    def may_know(self, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """For each of (n, 16) bytes whether it may have been added."""
        return self._slots[_slots_of(keys)] != 0

    def add(self, keys: NDArray[np.uint8]) -> None:
        """Remember (n, 16) bytes. Processes that do so at the same time do not disturb each other."""
        self._added += len(keys)
        if self._added > MOST_ADDED:
            self._slots[:] = 0
            self._added = len(keys)
        self._slots[_slots_of(keys)] = 1


def _slots_of(keys: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The end of a key is random, or a hash, whatever its id is like."""
    return np.ascontiguousarray(keys[:, 8:]).view(np.uint64).ravel() % np.uint64(SLOTS)
