"""Logs that are written, rotated and cut while they are read, by readers that are killed: every record, each once."""

import gzip
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from metering.logs.checkpoints import Checkpoints
from metering.logs.files import LogFile
from metering.logs.following import Follower
from metering.logs.formats import translator
from metering.logs.mapping import Incomplete, LogRecord
from metering.logs.reading import FileReader
from metering.spool import SpoolFullError, open_state
from tests.factories.gateway_logs import line, nameless


class Sink:
    """Keeps what it receives, and refuses as often as asked."""

    def __init__(self) -> None:
        self.reported: list[LogRecord] = []
        self.full = 0

    def put(self, reported: list[LogRecord]) -> None:
        if self.full:
            self.full -= 1
            raise SpoolFullError("full")
        self.reported += reported

    @property
    def numbers(self) -> list[int]:
        return [-1 if isinstance(item, Incomplete) else item.input_tokens for item in self.reported]

    @property
    def ids(self) -> list[str]:
        return [item.fields["id"] if isinstance(item, Incomplete) else item.id for item in self.reported]


class Reading:
    """A reader with a state of its own, that can be closed and opened again."""

    def __init__(self, folder: Path, *given: str, table: str = "", once: bool = False, since: float = 0) -> None:
        self.state = folder / "state"
        self.sink = Sink()
        self.connection = open_state(self.state / "tokens.sqlite")
        self.checkpoints = Checkpoints(self.connection, self.state / "rejected.jsonl")
        translate = translator("one-api" if table else "envoy", source="gw")
        reader = FileReader(self.connection, self.checkpoints, translate, self.sink, table=table)
        self.follower = Follower(given, reader, once=once, since=since)

    def read(self) -> list[int]:
        """Everything that can be read now; what came of it since the last time."""
        before = len(self.sink.reported)
        while self.follower.look():
            pass
        return self.sink.numbers[before:]

    def close(self) -> None:
        self.follower.close()
        self.connection.close()

    @property
    def rejected(self) -> list[dict[str, Any]]:
        path = self.state / "rejected.jsonl"
        return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "access.log"
    path.parent.mkdir()
    return path


@pytest.fixture
def reading(tmp_path: Path, log: Path) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(*given: str, **options: Any) -> Reading:
        made.append(Reading(tmp_path, *(given or (str(log),)), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Reading]


def test_what_is_appended_is_read_and_half_a_line_waits_for_its_other_half(log: Path, reading: Make) -> None:
    reader = reading()
    assert reader.read() == []
    log.write_text(line(1) + line(2)[:40])
    assert reader.read() == [1]
    with log.open("a") as file:
        file.write(line(2)[40:])
    assert reader.read() == [2]
    assert reader.read() == []


def test_a_file_that_is_renamed_is_read_to_its_end_and_its_successor_from_its_beginning(log: Path, reading: Make) -> None:
    reader = reading()
    log.write_text(line(1))
    assert reader.read() == [1]
    with log.open("a") as writer:
        log.rename(log.with_name("access.log.1"))
        log.write_text(line(3))
        writer.write(line(2))
        writer.flush()
        assert sorted(reader.read()) == [2, 3]


def test_a_file_that_is_copied_and_cut_is_read_on_in_its_copy(log: Path, reading: Make) -> None:
    reader = reading()
    log.write_text(line(1) + line(2))
    assert reader.read() == [1, 2]
    with log.open("a") as file:
        file.write(line(3))
    shutil.copyfile(log, log.with_name("access.log.1"))
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write(line(4))
    assert sorted(reader.read()) == [3, 4]


def test_a_file_that_is_cut_and_grows_beyond_its_old_end_is_read_from_its_beginning(log: Path, reading: Make) -> None:
    reader = reading()
    log.write_text(line(1))
    assert reader.read() == [1]
    log.write_text(line(2) + line(3) + line(4))
    assert reader.read() == [2, 3, 4]


@pytest.mark.parametrize(("between", "end"), [(", ", ""), (", ", "\n"), (",\n", "\n")])
def test_arrays_that_differ_in_one_record_only_are_two_files(log: Path, reading: Make, between: str, end: str) -> None:
    """What they have in common is longer than the first 64 KiB, and than the last KiB."""
    before = [line(number).strip() for number in range(100, 500)]
    after = [line(number).strip() for number in range(600, 610)]
    assert len(before) * len(before[0]) > 65_536
    assert len(after) * len(after[0]) > 1024
    reader = reading()
    for name, number in (("one", 501), ("two", 502)):
        records = between.join([*before, line(number).strip(), *after])
        log.with_name(f"access.log.{name}").write_text(f"[{between[1:]}{records}{between[1:]}]{end}")
    found = reader.read()
    assert (found.count(501), found.count(502), len(found)) == (1, 1, 2 * 411)


def test_a_file_that_loses_its_last_name_is_read_to_its_end(log: Path, reading: Make) -> None:
    reader = reading()
    log.write_text(line(1))
    assert reader.read() == [1]
    with log.open("a") as file:
        file.write(line(2))
    log.unlink()
    assert reader.read() == [2]
    log.write_text(line(3))
    assert reader.read() == [3]


def test_a_file_that_was_rotated_and_compressed_while_nobody_read_is_read_on(log: Path, reading: Make) -> None:
    first = reading()
    log.write_text(line(1) + line(2))
    assert first.read() == [1, 2]
    first.close()
    with log.open("a") as file:
        file.write(line(3))
    log.with_name("access.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    log.write_text(line(4))
    second = reading()
    assert sorted(second.read()) == [3, 4]
    second.close()
    assert reading().read() == []


def test_a_gzip_file_that_is_still_being_written_is_finished_later(log: Path, reading: Make) -> None:
    whole = gzip.compress("".join(line(number) for number in range(1, 5_001)).encode(), compresslevel=1)
    path = log.with_name("old.gz")
    path.write_bytes(whole[: len(whole) // 2])
    reader = reading(str(path))
    some = reader.read()
    assert 0 < len(some) < 5_000
    assert reader.follower.problems() == [f"{path}: gzip file is cut short or damaged: "
                                          "Compressed file ended before the end-of-stream marker was reached"]  # fmt: skip
    path.write_bytes(whole)
    assert some + reader.read() == list(range(1, 5_001))
    assert reader.follower.problems() == []


def test_old_files_of_a_rotation_are_left_alone_unless_they_are_named(log: Path, reading: Make) -> None:
    log.write_text(line(2))
    old = log.with_name("access.log.1")
    old.write_text(line(1))
    os.utime(old, (1000, 1000))
    assert reading(since=2000).read() == [2]
    assert reading(str(old), since=2000).read() == [1]


def test_all_files_of_a_directory_are_read(log: Path, reading: Make) -> None:
    for number in (1, 2, 3):
        log.with_name(f"{number}.log").write_text(line(number))
    assert reading(str(log.parent)).read() == [1, 2, 3]


def test_equal_lines_without_an_id_are_two_records_and_a_copy_of_their_file_is_none(log: Path, reading: Make) -> None:
    log.write_text(nameless(7) + nameless(7))
    reader = reading()
    assert reader.read() == [7, 7]
    assert len(set(reader.sink.ids)) == 2
    copy = log.with_name("copy.gz")
    copy.write_bytes(gzip.compress(log.read_bytes()))
    again = Reading(log.parent, str(copy))
    assert again.read() == [7, 7]
    assert again.sink.ids == reader.sink.ids
    again.close()


def test_a_line_that_containerd_cut_is_read_once_when_its_last_part_is_there(log: Path, reading: Make) -> None:
    text = line(7, prompt="p" * 16_384).rstrip("\n")
    log.write_text("2026-10-05T10:00:00.1Z stdout F " + line(1) + f"2026-10-05T10:00:01.1Z stdout P {text[:16_384]}\n")
    reader = reading()
    assert reader.read() == [1]
    with log.open("a") as file:
        file.write(f"2026-10-05T10:00:01.1Z stdout F {text[16_384:]}\n2026-10-05T10:00:02Z stdout F " + line(2))
    assert (reader.read(), reader.rejected) == ([7, 2], [])


def test_a_bad_line_is_kept_with_its_reason_and_costs_nothing_else(log: Path, reading: Make) -> None:
    bad = "garbage\n" + line(0, consumer=None) + line(0, start_time=None)
    log.write_text(line(1) + bad + line(2))
    reader = reading()
    reader.read()
    assert [number for number in reader.sink.numbers if number >= 0] == [1, 2]
    assert [(item["offset"], item["reason"]) for item in reader.rejected] == [
        (len(line(1)), "not JSON: JSON is malformed: invalid character (byte 0)"),
        (len(line(1)) + 8, "consumer is missing: none of consumer | x-consumer | user_id | x-user-id"),
        (len(line(1)) + 8 + len(line(0, consumer=None)), "time is missing: none of start_time"),
    ]  # fmt: skip
    assert reader.rejected[0]["line"] == "garbage"
    assert (reader.state / "rejected.jsonl").stat().st_mode & 0o077 == 0
    assert reader.checkpoints.counts()["rejected"] == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(7, consumer=None), "consumer is missing: none of consumer | x-consumer | user_id | x-user-id"),
        (line(7, start_time="5 Oct"), 'time "5 Oct": expected an RFC 3339 instant with an offset'),
        (line(7)[:60] + line(8), "not JSON: JSON is malformed"),
        (line(7)[60:], "not JSON: JSON is malformed"),
    ],
    ids=["who pays is missing", "a time that is none", "cut by a crash and written on", "the rest of a line"],
)
def test_a_record_that_cannot_be_read_is_reported_for_the_quarantine(
    log: Path, reading: Make, text: str, reason: str
) -> None:
    """Only its id and the reason: the line itself stays with the reader."""
    log.write_text(line(1) + text + line(2))
    reader = reading()
    assert sorted(reader.read()) == [-1, 1, 2]
    (found,) = [item for item in reader.sink.reported if isinstance(item, Incomplete)]
    (kept,) = reader.rejected
    assert found.reason.startswith(reason)
    assert found.record == {"id": kept["id"], "attributes": {"usage_refused": found.reason}}
    again = Reading(log.parent, str(log))
    again.read()
    assert again.sink.ids == reader.sink.ids
    again.close()


@pytest.mark.parametrize("text", ["starting main dispatch loop\n", '"quoted"\n', "[2026-10-05] warning\n", "12\n"])
def test_text_that_is_no_record_stays_with_the_reader(log: Path, reading: Make, text: str) -> None:
    log.write_text(line(1) + text + line(2))
    reader = reading()
    assert (reader.read(), len(reader.rejected)) == ([1, 2], 1)


def test_a_byte_order_mark_costs_no_record(log: Path, reading: Make) -> None:
    log.write_bytes(b"\xef\xbb\xbf" + line(1).encode() + line(2).replace("\n", "\r\n").encode())
    reader = reading()
    assert (reader.read(), reader.rejected) == ([1, 2], [])


def test_a_line_without_end_does_not_fill_the_memory(log: Path, reading: Make) -> None:
    with log.open("wb") as file:
        file.write(b"x" * (70 << 20) + b"\n" + line(1).encode())
    reader = reading()
    assert reader.read() == [1]
    assert len(reader.rejected) == 3
    assert all(len(item["line"]) <= 64 << 10 for item in reader.rejected)


def test_the_hole_that_a_cut_file_has_before_its_next_line_is_nothing(log: Path, reading: Make) -> None:
    reader = reading()
    log.write_text(line(1))
    assert reader.read() == [1]
    with log.open("r+b") as file:
        file.truncate(0)
        file.seek(40 << 20)
        file.write(line(2).encode())
    assert reader.read() == [2]
    assert reader.rejected == []


def test_while_the_spool_is_full_nothing_is_read_and_then_everything(
    log: Path, reading: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.logs.following.FULL_WAIT_S", 0.01)
    reader = reading()
    log.write_text(line(1) + "garbage\n" + line(2))
    reader.sink.full = 1
    assert reader.read() == [1, 2]
    assert [item["line"] for item in reader.rejected] == ["garbage"]


def test_who_is_stopped_while_the_spool_is_full_does_not_say_that_all_was_read(
    log: Path, reading: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.logs.following.FULL_WAIT_S", 0.01)
    reader, stop, watched = reading(), threading.Event(), []
    log.write_text(line(1))
    refuse = reader.sink.put
    reader.sink.full = 3

    def put(reported: list[LogRecord]) -> None:
        if reader.sink.full == 1:
            stop.set()
        refuse(reported)

    monkeypatch.setattr(reader.sink, "put", put)
    reader.follower.follow(stop, poll_s=0.01, at_end=watched.append)
    assert (reader.sink.reported, watched) == ([], [])


def said_to_be_read(reader: Reading) -> list[datetime]:
    """When a reader that follows its logs for three looks says that it has read all of them."""
    stop, watched, looks = threading.Event(), [], iter(range(3))

    def look() -> bool:
        if next(looks, None) is None:
            stop.set()
        return Follower.look(reader.follower)

    reader.follower.look = look  # type: ignore[method-assign]
    reader.follower.follow(stop, poll_s=0.01, at_end=watched.append)
    return watched


def test_who_cannot_open_a_log_does_not_say_that_all_was_read(
    log: Path, reading: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text(line(1))

    def forbidden(*_: object, **__: object) -> LogFile:
        raise PermissionError(13, "Permission denied")

    reader = reading()
    with monkeypatch.context() as denied:
        denied.setattr("metering.logs.following.LogFile", forbidden)
        assert said_to_be_read(reader) == []
    assert len(said_to_be_read(reader)) > 0
    assert reader.sink.numbers == [1]


def test_who_finds_no_log_does_not_say_that_all_was_read(log: Path, reading: Make) -> None:
    """Its volume is not mounted, for example."""
    reader = reading()
    assert said_to_be_read(reader) == []
    log.write_text("")
    assert len(said_to_be_read(reader)) > 0


def test_who_reads_a_damaged_log_does_not_say_that_all_was_read(log: Path, reading: Make) -> None:
    packed = log.with_name("access.log.1.gz")
    whole = gzip.compress("".join(line(number) for number in range(1, 501)).encode())
    packed.write_bytes(whole[:-20])
    reader = reading(str(packed))
    assert said_to_be_read(reader) == []
    packed.write_bytes(whole)
    assert len(said_to_be_read(reader)) > 0
    assert sorted(set(reader.sink.numbers)) == list(range(1, 501))


def test_the_table_of_an_sqlite_file_is_read_by_its_key(tmp_path: Path, reading: Make) -> None:
    path = tmp_path / "one-api.db"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE logs (id INTEGER PRIMARY KEY, created_at INTEGER, type INTEGER, username TEXT, model_name TEXT,"
        " prompt_tokens INTEGER, completion_tokens INTEGER)"
    )
    add = "INSERT INTO logs (created_at, type, username, model_name, prompt_tokens, completion_tokens) VALUES (?,?,?,?,?,?)"
    with database:
        database.executemany(add, [(1791194400, 2, "alice", "m", number, 1) for number in range(1, 2501)])
    reader = reading(str(path), table="logs")
    assert reader.read() == list(range(1, 2501))
    with database:
        database.execute(add, (1791194401, 1, "alice", "", 0, 0))
        database.execute(add, (1791194401, 2, "alice", "m", 9, 1))
    assert reader.read() == [9]
    assert reader.sink.ids[-1] == "2502:1791194401"
    database.close()


def test_an_export_is_read_to_its_last_row_with_or_without_a_line_end(tmp_path: Path, reading: Make) -> None:
    path = tmp_path / "logs.csv"
    header = "id,created_at,type,username,model_name,prompt_tokens,completion_tokens\n"
    path.write_text(header + "1,1791194400,2,alice,m,5,1\n2,1791194400,2,alice,m,6,1")
    reader = reading(str(path), table="logs", once=True)
    assert reader.read() == [5, 6]
