"""Web processes of one machine write their groups in turn: each finds in the queue what came in while another wrote.

A commit costs the disk and the processor about the same for one record as for a hundred. Two processes that commit at
the same time commit twice as often, half as much each, and look for repeats among rows that they cannot see yet. A turn
is a courtesy, not a rule: whoever lost patience writes all the same, as beside a process that was stopped or killed in
its turn, or on a machine so busy that turns would leave it idle; the primary key decides then, as between machines.

The turn is a byte in a named pipe. Who reads it writes it back; who finds none in time adds one; who finds several
keeps one.
"""

import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

_TOKEN: Final = b"."
_ALL: Final = 4096


class WritingTurn:
    """The turn of the pipe `path`.  Raises OSError where it cannot be made or is something else."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(self._pipe).st_mode):
            os.close(self._pipe)
            raise FileExistsError(f"{path} is no named pipe")

    @contextmanager
    def taken(self, patience: float) -> Iterator[bool]:
        """Wait for the turn, at most so many seconds, and hold it for the block; False where it did not come in time."""
        came = self._came(monotonic() + patience)
        try:
            yield came
        finally:
            with suppress(BlockingIOError):  # full of turns: there are enough
                os.write(self._pipe, _TOKEN)

    def _came(self, deadline: float) -> bool:
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        while (left := deadline - monotonic()) > 0:
            if not waiting.poll(left * 1000):
                break
            with suppress(BlockingIOError):  # another was quicker
                os.read(self._pipe, _ALL)
                return True
        return False
