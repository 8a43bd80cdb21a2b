"""The writer of a process that never waits: what it writes together, what becomes of errors, and how it ends."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from django.db import DataError, OperationalError

from billing.usage.services import IngestOutcome, Reporter, Result, TokenWriter, token_writer
from billing.usage.services.token_batch import TokenBatch
from billing.usage.services.token_steps import Writing

REPORTER = Reporter("tests", "usage/tokens", "", None)
Batches = Sequence[TokenBatch]
PATIENCE = 30


def batch(records: int) -> TokenBatch:
    """The writer asks nothing of the records but how many they are."""
    return TokenBatch(REPORTER, lambda _: b"", records=[None] * records)  # type: ignore[list-item]


def sizes(batches: Batches) -> list[int]:
    return [len(each.records) for each in batches]


class Told:
    """What the writer said of each group, and a database that can be held up. Made in a running loop."""

    def __init__(self, write: Callable[[Batches], list[IngestOutcome]] | None = None, *, most: int = 10) -> None:
        self.groups: list[list[int]] = []
        self.results: dict[str, Result] = {}
        self.write = write or (lambda batches: [IngestOutcome(accepted=size) for size in sizes(batches)])
        self.open, self.busy = threading.Event(), threading.Event()
        self.open.set()
        self.writer = TokenWriter[str](self._writing, self.results.update, most=most)

    def _writing(self, batches: Batches) -> Writing[list[IngestOutcome]]:
        """One step, which another thread waits for."""
        return (yield lambda: self._write(batches))

    def _write(self, batches: Batches) -> list[IngestOutcome]:
        self.busy.set()
        assert self.open.wait(timeout=PATIENCE)
        self.groups.append(sizes(batches))
        return self.write(batches)

    @asynccontextmanager
    async def held_up(self) -> AsyncIterator[None]:
        """The first report is being written, whatever comes in the block waits."""
        self.open.clear()
        self.writer.submit("first", batch(1))
        assert await asyncio.to_thread(self.busy.wait, PATIENCE)
        yield
        self.open.set()


def in_a_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(bounded())


def accepted(found: Told) -> dict[str, int]:
    return {name: result.accepted for name, result in found.results.items() if isinstance(result, IngestOutcome)}


def test_what_comes_while_a_group_is_written_is_the_next_up_to_the_limit() -> None:
    async def work() -> None:
        found = Told(most=10)
        async with found.held_up():
            for number, size in enumerate((3, 4, 3, 2, 50, 1)):
                found.writer.submit(str(number), batch(size))
        await found.writer.stop()
        assert found.groups == [[1], [3, 4, 3], [2], [50], [1]]
        assert accepted(found) == {"first": 1, "0": 3, "1": 4, "2": 3, "3": 2, "4": 50, "5": 1}

    in_a_loop(work)


def test_a_large_group_is_made_ready_before_its_turn_and_what_comes_later_is_of_another() -> None:
    async def work() -> None:
        found = Told(most=1000)
        async with found.held_up():
            for size in (150, 150, 50, 30):
                found.writer.submit(str(size), batch(size))
        await found.writer.stop()
        assert found.groups == [[1], [150, 150], [50, 30]]
        assert set(found.results) == {"first", "150", "50", "30"}

    in_a_loop(work)


def test_what_came_in_at_once_is_written_together() -> None:
    async def work() -> None:
        found = Told()
        for number in range(4):
            found.writer.submit(str(number), batch(2))
        await found.writer.stop()
        assert found.groups == [[2, 2, 2, 2]]

    in_a_loop(work)


def test_a_report_that_the_database_does_not_take_stands_alone() -> None:
    refusal = DataError("too large")

    def write(batches: Batches) -> list[IngestOutcome]:
        if 7 in sizes(batches):
            raise refusal
        return [IngestOutcome(accepted=size) for size in sizes(batches)]

    async def work() -> None:
        found = Told(write)
        async with found.held_up():
            for size in (2, 7, 1):
                found.writer.submit(str(size), batch(size))
        await found.writer.stop()
        assert found.groups == [[1], [2, 7, 1], [2], [7], [1]]
        assert found.results["7"] is refusal
        assert accepted(found) == {"first": 1, "2": 2, "1": 1}

    in_a_loop(work)


def test_an_error_is_told_to_everybody_of_the_group_and_to_nobody_else() -> None:
    away = OperationalError("away")

    def write(batches: Batches) -> list[IngestOutcome]:
        if len(batches) == 2:
            raise away
        return [IngestOutcome(accepted=size) for size in sizes(batches)]

    async def work() -> None:
        found = Told(write, most=2)
        async with found.held_up():
            for name in ("a", "b", "c"):
                found.writer.submit(name, batch(1))
        await found.writer.stop()
        assert (found.results["a"], found.results["b"]) == (away, away)
        assert found.results["c"] == found.results["first"] == IngestOutcome(accepted=1)

    in_a_loop(work)


def test_what_waits_too_long_is_given_back_and_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.usage.services.token_writer.QUEUE_SECONDS", -1)

    async def work() -> None:
        found = Told()
        async with found.held_up():
            found.writer.submit("late", batch(5))
            ((ticket, error),) = found.writer.overdue()
            assert found.writer.overdue() == []
        await found.writer.stop()
        assert (ticket, type(error)) == ("late", OperationalError)
        assert found.groups == [[1]]
        assert set(found.results) == {"first"}

    in_a_loop(work)


def test_a_group_that_is_ready_but_not_begun_is_given_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        found = Told()
        async with found.held_up():
            found.writer.submit("ready", batch(token_writer.MUCH))
            found.writer.submit("behind", batch(1))
            assert found.writer.overdue() == []
            monkeypatch.setattr(token_writer, "QUEUE_SECONDS", -1)
            assert [ticket for ticket, _ in found.writer.overdue()] == ["ready", "behind"]
        await found.writer.stop()
        assert found.groups == [[1]]
        assert set(found.results) == {"first"}

    in_a_loop(work)


def test_what_was_to_stand_alone_is_given_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(batches: Batches) -> list[IngestOutcome]:
        if len(batches) > 1:
            found[0].busy.clear()
            found[0].open.clear()
            raise DataError("too large")
        return [IngestOutcome(accepted=size) for size in sizes(batches)]

    found = list[Told]()

    async def work() -> None:
        found.append(Told(write))
        async with found[0].held_up():
            for size in (2, 3, 4):
                found[0].writer.submit(str(size), batch(size))
        await asyncio.to_thread(found[0].busy.wait, PATIENCE)
        while found[0].groups[-1:] != [[2, 3, 4]] or not found[0].busy.is_set():
            await asyncio.sleep(0.01)
        monkeypatch.setattr(token_writer, "QUEUE_SECONDS", -1)
        assert [ticket for ticket, _ in found[0].writer.overdue()] == ["3", "4"]
        found[0].open.set()
        await found[0].writer.stop()
        assert found[0].groups == [[1], [2, 3, 4], [2]]
        assert accepted(found[0]) == {"first": 1, "2": 2}

    in_a_loop(work)


def test_the_end_waits_for_what_was_submitted() -> None:
    async def work() -> None:
        found = Told()
        async with found.held_up():
            for number in range(5):
                found.writer.submit(str(number), batch(4))
            ending = asyncio.ensure_future(found.writer.stop())
            await asyncio.sleep(0.05)
            assert not ending.done()
        await ending
        assert set(found.results) == {"first", "0", "1", "2", "3", "4"}

    in_a_loop(work)


def test_an_idle_writer_begins_with_each_report() -> None:
    async def work() -> None:
        found = Told()
        for number in range(50):
            found.writer.submit(str(number), batch(1))
            while str(number) not in found.results:
                await asyncio.sleep(0.001)
        await found.writer.stop()
        assert found.groups == [[1]] * 50

    in_a_loop(work)
