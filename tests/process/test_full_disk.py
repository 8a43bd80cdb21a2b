"""What the disk of a gateway does not take: tried again while the process lives, and missed by its number if it dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from metering.gateways.outbox import FILE, Outbox, collect_lost, open_outbox, pack
from metering.spool import Spool
from tests.cli import PROJECT

RECORD = (
    '{"id": "%d", "source": "gw", "time": "2026-10-05T10:00:00Z", "consumer": "nlp", "model": "qwen", "input_tokens": 10, '
    '"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 3, "reasoning_output_tokens": 0}'
)
WRITER = f"RECORD = {RECORD!r}\n" + """
import resource, sqlite3, sys
from pathlib import Path
from metering.gateways.outbox import Outbox

folder = Path(sys.argv[1])
outbox = Outbox(folder)

def put(number):
    try:
        outbox.put(str(number), (RECORD % number).encode()).result(30)
    except sqlite3.Error as error:
        print("not kept", flush=True)
    else:
        print("kept", flush=True)

for line in sys.stdin:
    word, number = line.split()
    if word == "put":
        put(int(number))
    elif word == "full":  # no file may grow any more: writing answers EFBIG, as it answers ENOSPC on a full disk
        size = max(path.stat().st_size for path in folder.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        print("full", flush=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print("free", flush=True)
outbox.close()
"""


class Writer:
    """A process of a gateway whose disk can be made full."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], cwd=PROJECT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def does(self, word: str, number: int = 0) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word} {number}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self, *, killed: bool) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if killed:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def sent(folder: Path) -> list[tuple[str, int]]:
    """Id and number of all that would be sent now."""
    connection = open_outbox(folder / FILE)
    spool = Spool(connection)
    collect_lost(connection, folder)
    while pack(connection, spool, now=time.time(), settle_s=0):
        pass
    bodies: list[list[dict[str, Any]]] = [
        json.loads(body) for (body,) in connection.execute("SELECT body FROM spool ORDER BY id")
    ]
    connection.close()
    return [(record["id"], record["sequence"]) for body in bodies for record in body]


def sent_when_complete(folder: Path, records: int) -> list[tuple[str, int]]:
    """What would be sent as soon as it is so many records, or after 30 seconds."""
    end = time.monotonic() + 30
    while len(found := sent(folder)) < records and time.monotonic() < end:
        time.sleep(0.2)
    return found


def test_what_a_full_disk_refuses_is_kept_as_soon_as_there_is_room(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    done = [writer.does("put", 1), writer.does("full"), writer.does("put", 2), writer.does("put", 3)]
    assert done == ["kept", "full", "not kept", "not kept"]
    assert [writer.does("free"), writer.does("put", 4)] == ["free", "kept"]
    writer.end(killed=False)
    assert sent(tmp_path) == [("1", 0), ("4", 1), ("2", 2), ("3", 3)]
    assert list(tmp_path.glob("unkept-*")) == []


def test_without_another_record_too_it_is_kept_as_soon_as_there_is_room(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    assert [writer.does("put", 1), writer.does("full"), writer.does("put", 2)] == ["kept", "full", "not kept"]
    assert writer.does("free") == "free"
    assert sent_when_complete(tmp_path, 2) == [("1", 0), ("2", 1)]
    writer.end(killed=True)


@pytest.mark.parametrize("killed", [True, False])
def test_what_a_process_took_with_it_leaves_as_many_numbers_out(tmp_path: Path, killed: bool) -> None:
    writer = Writer(tmp_path)
    done = [writer.does("put", 1), writer.does("full"), writer.does("put", 2), writer.does("put", 3), writer.does("put", 3)]
    assert done == ["kept", "full", "not kept", "not kept", "not kept"]
    writer.end(killed=killed)
    assert sent(tmp_path) == [("1", 0)]
    for number, expected in ((4, 3), (5, 4)):
        outbox = Outbox(tmp_path)
        outbox.put(str(number), (RECORD % number).encode()).result(10)
        outbox.close()
        assert sent(tmp_path)[-1] == (str(number), expected)
    assert list(tmp_path.glob("unkept-*")) == []


def test_a_living_process_is_not_counted_as_lost(tmp_path: Path) -> None:
    writer, other = Writer(tmp_path), Writer(tmp_path)
    assert [writer.does("put", 1), writer.does("full"), writer.does("put", 2)] == ["kept", "full", "not kept"]
    assert sent(tmp_path) == [("1", 0)]
    assert other.does("put", 3) == "kept"
    assert sent(tmp_path) == [("1", 0), ("3", 1)]
    assert [writer.does("free"), writer.does("put", 4)] == ["free", "kept"]
    kept = sent_when_complete(tmp_path, 4)  # the second is tried again on its own too: it may come before the fourth
    assert (sorted(name for name, _ in kept), [number for _, number in kept]) == (["1", "2", "3", "4"], [0, 1, 2, 3])
    for process in (writer, other):
        process.end(killed=True)
