"""Numbers of what a reporter hands over: one after the other for each source, through kill -9, none in vain."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from metering.gateways.outbox import FILE, Outbox, open_outbox, pack
from metering.logs.reading import SpoolSink
from metering.numbering import Numbering
from metering.records import TokenUsage
from metering.spool import Spool, SpoolFullError, open_state
from tests.cli import PROJECT
from tests.factories import token_record


def record(number: int, **changed: Any) -> TokenUsage:
    return msgspec.convert(token_record(number, **changed), TokenUsage)


def reported(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """All that is in the spool, in order."""
    bodies = connection.execute("SELECT body FROM spool WHERE door = 'usage/tokens' ORDER BY id").fetchall()
    return [item for (body,) in bodies for item in json.loads(body)]


def numbers(records: list[dict[str, Any]]) -> dict[tuple[str, str], list[int]]:
    """The numbers of each source and run, in the order in which they were reported."""
    found = defaultdict(list)
    for item in records:
        found[item["source"], item["sequence_run"]].append(item["sequence"])
    return dict(found)


def test_each_source_counts_for_itself_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    first = open_state(path)
    with first:
        given = Numbering(first).number([record(1), record(2, source="b"), record(3)])
    first.close()
    second = open_state(path)
    with second:
        given += Numbering(second).number([record(4, source="b"), record(5)])
    second.close()
    assert [(item.source, item.sequence) for item in given] == [
        ("litellm-hq", 0), ("b", 0), ("litellm-hq", 1), ("b", 1), ("litellm-hq", 2),
    ]  # fmt: skip
    assert len({(item.source, item.sequence_run) for item in given}) == 2
    assert given[2] == msgspec.structs.replace(record(3), sequence=1, sequence_run=given[0].sequence_run)


def test_a_new_state_is_a_run_of_its_own_and_a_number_that_is_there_stays(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        connection = open_state(tmp_path / name)
        (mine, numbered) = Numbering(connection).number([record(1), record(2, sequence=77, sequence_run="theirs")])
        assert (mine.sequence, numbered.sequence, numbered.sequence_run) == (0, 77, "theirs")
        runs.append(mine.sequence_run)
        connection.close()
    assert runs[0] != runs[1]


def test_a_spool_that_refuses_takes_no_number(tmp_path: Path) -> None:
    connection = open_state(tmp_path / "state.sqlite")
    numbering = Numbering(connection)
    full, roomy = SpoolSink(Spool(connection, max_bytes=10), numbering), SpoolSink(Spool(connection), numbering)
    for sink, number in ((roomy, 1), (full, 2), (roomy, 3)):
        try:
            with connection:
                sink.put([record(number)])
        except SpoolFullError:
            assert sink is full
    found = reported(connection)
    connection.close()
    assert [(item["id"], item["sequence"]) for item in found] == [("req-1", 0), ("req-3", 1)]


def test_a_record_that_is_reported_again_takes_no_second_number_and_what_is_no_record_none(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for key, item in (("a", record(1)), ("b", {"id": "odd"}), ("a", record(1)), ("c", record(2))):
        outbox.put(key, msgspec.json.encode(item)).result(10)
    outbox.close()
    connection = open_outbox(tmp_path / FILE)
    pack(connection, Spool(connection), now=time.time(), settle_s=0)
    first, odd, second = reported(connection)
    connection.close()
    assert (first["sequence"], second["sequence"], odd) == (0, 1, {"id": "odd"})


RECORD = """
import sys, msgspec, time
from datetime import UTC, datetime
from pathlib import Path
from metering.gateways.outbox import FILE, Outbox, open_outbox, pack
from metering.logs.reading import SpoolSink
from metering.numbering import Numbering
from metering.records import TokenUsage
from metering.spool import Spool, open_state
def record(id):
    return TokenUsage(id, "gw", datetime(2026, 10, 15, tzinfo=UTC), "c", "m", 9, 0, 0, 5, 0)
"""
PUTTER = """
outbox = Outbox(Path(sys.argv[1]))
for number in range(10**6):
    name = f"{sys.argv[2]}-{number}"
    outbox.put(name, msgspec.json.encode(record(name))).result()
    print(number, flush=True)
"""
PACKER = """
connection = open_outbox(Path(sys.argv[1]) / FILE)
spool = Spool(connection)
while True:
    print(pack(connection, spool, now=time.time(), settle_s=0), flush=True)
"""
READER = """
connection = open_state(Path(sys.argv[1]) / "tokens.sqlite")
sink = SpoolSink(Spool(connection), Numbering(connection))
for number in range(10**6):
    with connection:
        sink.put([record(f"{sys.argv[2]}-{number}-{part}") for part in range(3)])
    print(number, flush=True)
"""


@pytest.mark.parametrize(("scripts", "file"), [((PUTTER, PUTTER, PACKER), FILE), ((READER,), "tokens.sqlite")])
def test_kill_9_leaves_neither_a_hole_nor_a_number_that_is_there_twice(
    tmp_path: Path, scripts: tuple[str, ...], file: str
) -> None:
    for turn in range(4):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", RECORD + script, str(tmp_path), f"{turn}-{place}"], cwd=PROJECT,
                stdout=subprocess.PIPE, text=True,
            )
            for place, script in enumerate(scripts)
        ]  # fmt: skip
        for process in running:
            assert process.stdout is not None
            for _ in range(5):
                assert process.stdout.readline(), "it works"
        for process in reversed(running):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    connection = open_state(tmp_path / file)
    if file == FILE:
        while pack(connection, Spool(connection), now=time.time(), settle_s=0):
            pass
    (found,) = numbers(reported(connection)).values()
    connection.close()
    assert found == list(range(len(found))), "one run through all restarts"
    assert len(found) >= 4 * 5
