"""The writer of a process that never waits: what it writes together, what becomes of errors, and how it ends."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from django.db import DataError, OperationalError

from billing.usage.services import IngestOutcome, Reporter, Result, TokenWriter
from billing.usage.services.token_batch import TokenBatch

REPORTER = Reporter("tests", "usage/tokens", "", None)
Batches = Sequence[TokenBatch]


def batch(records: int) -> TokenBatch:
    """The writer asks nothing of the records but how many they are."""
    return TokenBatch(REPORTER, lambda _: b"", records=[None] * records)  # type: ignore[list-item]


def sizes(batches: Batches) -> list[int]:
    return [len(each.records) for each in batches]


class Told:
    """What the writer said of each group, and a database that can be held up."""

    def __init__(self, write: Callable[[Batches], list[IngestOutcome]] | None = None, *, most: int = 10) -> None:
        self.groups: list[list[int]] = []
        self.results: dict[str, Result] = {}
        self.write = write or (lambda batches: [IngestOutcome(accepted=size) for size in sizes(batches)])
        self.open, self.busy = threading.Event(), threading.Event()
        self.open.set()
        self.writer = TokenWriter[str](self._write, lambda results: self.results.update(results), most=most)

    def _write(self, batches: Batches) -> list[IngestOutcome]:
        self.busy.set()
        assert self.open.wait(timeout=30)
        self.groups.append(sizes(batches))
        return self.write(batches)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """The first report is being written, whatever comes in the block waits."""
        self.open.clear()
        self.writer.submit("first", batch(1))
        assert self.busy.wait(timeout=30)
        yield
        self.open.set()


def told(**how: int) -> Told:
    found = Told(**how)
    found.writer.start()
    return found


def test_what_comes_while_a_group_is_written_is_the_next_up_to_the_limit() -> None:
    found = told(most=10)
    with found.held_up():
        for number, size in enumerate((3, 4, 3, 2, 50, 1)):
            found.writer.submit(str(number), batch(size))
    found.writer.stop()
    assert found.groups == [[1], [3, 4, 3], [2], [50], [1]]
    assert {name: result.accepted for name, result in found.results.items() if isinstance(result, IngestOutcome)} == {
        "first": 1, "0": 3, "1": 4, "2": 3, "3": 2, "4": 50, "5": 1,
    }  # fmt: skip


def test_a_report_that_the_database_does_not_take_stands_alone() -> None:
    refusal = DataError("too large")

    def write(batches: Batches) -> list[IngestOutcome]:
        if 7 in sizes(batches):
            raise refusal
        return [IngestOutcome(accepted=size) for size in sizes(batches)]

    found = Told(write)
    found.writer.start()
    with found.held_up():
        for size in (2, 7, 1):
            found.writer.submit(str(size), batch(size))
    found.writer.stop()
    assert found.groups == [[1], [2, 7, 1], [2], [7], [1]]
    assert found.results["7"] is refusal
    assert [found.results[name] for name in ("2", "1")] == [IngestOutcome(accepted=2), IngestOutcome(accepted=1)]


def test_an_error_is_told_to_everybody_of_the_group_and_to_nobody_else() -> None:
    away = OperationalError("away")

    def write(batches: Batches) -> list[IngestOutcome]:
        if len(batches) == 2:
            raise away
        return [IngestOutcome(accepted=size) for size in sizes(batches)]

    found = Told(write, most=2)
    found.writer.start()
    with found.held_up():
        for name in ("a", "b", "c"):
            found.writer.submit(name, batch(1))
    found.writer.stop()
    assert (found.results["a"], found.results["b"]) == (away, away)
    assert found.results["c"] == found.results["first"] == IngestOutcome(accepted=1)


def test_what_waits_too_long_is_given_back_and_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.usage.services.token_writer.QUEUE_SECONDS", -1)
    found = told()
    with found.held_up():
        found.writer.submit("late", batch(5))
        ((ticket, error),) = found.writer.overdue()
        assert found.writer.overdue() == []
    found.writer.stop()
    assert (ticket, type(error)) == ("late", OperationalError)
    assert found.groups == [[1]]
    assert set(found.results) == {"first"}


def test_the_end_waits_for_what_was_submitted() -> None:
    found = told()
    with found.held_up():
        for number in range(5):
            found.writer.submit(str(number), batch(4))
        ending = threading.Thread(target=found.writer.stop)
        ending.start()
    ending.join(timeout=30)
    assert not ending.is_alive()
    assert set(found.results) == {"first", "0", "1", "2", "3", "4"}


def test_an_idle_writer_wakes_for_each_report() -> None:
    found = told()
    for number in range(50):
        found.writer.submit(str(number), batch(1))
        while str(number) not in found.results:
            threading.Event().wait(0.001)
    found.writer.stop()
    assert found.groups == [[1]] * 50
