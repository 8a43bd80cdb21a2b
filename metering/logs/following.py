"""Loop over the log files: finds them again and again, reads each to its end, and waits while the spool is full."""

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from metering.logs.checkpoints import Checkpoint
from metering.logs.files import LogFile, Stream, log_paths
from metering.logs.reading import FileReader, is_sqlite
from metering.spool import SpoolFullError

log = logging.getLogger(__name__)
FULL_WAIT_S: Final = 2.0
STDIN: Final = "-"
MISSING: Final = "no such file or directory"


class Follower:
    """Reader of the given files: once with `read_all`, or on and on with `follow`.

    Files stay open while they have a name, and until they are read to their end when they lost it: a log that is rotated
    away and deleted is read to its last line. `since`: rotated files that changed before it (s since 1970) are not read.
    `once`: no more content is awaited; the last line of an exported table needs no line's end.
    """

    def __init__(
        self, given: Sequence[str], reader: FileReader, *, pattern: str = "*", since: float = 0.0, once: bool = False
    ) -> None:
        self._given = given
        self._reader = reader
        self._pattern = pattern
        self._since = since
        self._once = once
        self._open: dict[tuple[int, int], LogFile] = {}
        self._at_end: dict[tuple[int, int], str] = {}
        self._problems: dict[str, str] = {}
        self._pause = threading.Event()

    def read_all(self) -> None:
        """Read all present content."""
        if not self._read_stream():
            while self.look():
                pass
            self.close()

    def follow(self, stop: threading.Event, *, poll_s: float, at_end: Callable[[datetime], None]) -> None:
        """Read until `stop` is set, looking for more every `poll_s` seconds.

        Whenever all is read, call `at_end` with the time at which the look began, unless a file cannot be read.
        """
        self._pause = stop
        if self._read_stream():
            return
        while not stop.is_set():
            began = datetime.now(UTC)
            if not self.look() and not stop.is_set():  # who is stopped while the spool is full is not at the end
                if not self._problems:
                    at_end(began)
                stop.wait(poll_s)
        self.close()

    def look(self) -> bool:
        """Look at every file once, and read on where there is more; return False if there was nothing."""
        self._find()
        moved, exported = False, self._once and bool(self._reader.table)
        for key, file in list(self._open.items()):
            stamp = file.stamp
            if self._at_end.get(key) != stamp and self._step(partial(self._reader.step, file, ended=exported)):
                moved = True
            elif not self._pause.is_set():
                self._at_end[key] = stamp
                self._note(file)
                if file.is_unlinked:
                    self._forget(key)
        for path in self._tables():
            moved |= self._step(partial(self._reader.step_table, path))
        return moved

    def problems(self) -> list[str]:
        """Return the problems that a person must look at."""
        return [f"{name}: {problem}" for name, problem in sorted(self._problems.items())]

    def close(self) -> None:
        """Close all files."""
        for key in list(self._open):
            self._forget(key)

    def _find(self) -> None:
        paths = [Path(name) for name in self._given]
        for path in paths:
            if not path.exists():
                self._problem(str(path), MISSING)
            elif self._problems.get(str(path)) == MISSING:
                del self._problems[str(path)]
        for path in log_paths(paths, pattern=self._pattern, since=self._since):
            try:
                status = path.stat()
                key = status.st_dev, status.st_ino
                if key in self._open:
                    self._open[key].name = str(path)
                elif not (self._reader.table and is_sqlite(path)):
                    file = LogFile(path, finished=self._once)
                    self._open.setdefault(file.key, file)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):  # gone between the listing and now: found under its new name
                    self._problem(str(path), error.strerror or str(error))

    def _tables(self) -> list[Path]:
        paths = [Path(name) for name in self._given] if self._reader.table else []
        return [path for path in paths if path.is_file() and is_sqlite(path)]

    def _read_stream(self) -> bool:
        """Read standard input to its end if it is given; return True if it is."""
        if STDIN not in self._given:
            return False
        step = partial(self._reader.step_stream, Stream(sys.stdin.fileno()), Checkpoint())
        while self._step(step):
            pass
        return True

    def _step(self, step: Callable[[], bool]) -> bool:
        """Run one step; repeat it while the spool is full, since an unread line cannot be lost."""
        while True:
            try:
                return step()
            except SpoolFullError as error:
                log.error("%s; reading stops", error)
                if self._pause.wait(FULL_WAIT_S):
                    return False

    def _note(self, file: LogFile) -> None:
        if file.broken:
            self._problem(file.name, f"gzip file is cut short or damaged: {file.broken}")
        else:
            self._problems.pop(file.name, None)

    def _problem(self, name: str, problem: str) -> None:
        if self._problems.get(name) != problem:
            log.error("%s: %s", name, problem)
        self._problems[name] = problem

    def _forget(self, key: tuple[int, int]) -> None:
        self._open.pop(key).close()
        self._at_end.pop(key, None)
