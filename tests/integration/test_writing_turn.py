"""Processes of one machine write in turn, and nobody waits long for one that went away with it."""

import multiprocessing
import os
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from billing.usage.services.writing_turn import WritingTurn

FORK = multiprocessing.get_context("fork")
ROUNDS = 200


def _count_up(pipe: Path, number: Path) -> None:
    turn = WritingTurn(pipe)
    for _ in range(ROUNDS):
        with turn.taken(30.0):
            number.write_text(str(int(number.read_text()) + 1))


def _hold(pipe: Path, held: Any) -> None:
    with WritingTurn(pipe).taken(30.0):
        held.set()
        signal.pause()


def first_turn(pipe: Path) -> WritingTurn:
    """The pipe with one turn in it, which the first adds as nobody has it."""
    turn = WritingTurn(pipe)
    with turn.taken(0.0) as came:
        assert not came
    return turn


def test_one_at_a_time_among_processes(tmp_path: Path) -> None:
    pipe, number = tmp_path / "turn", tmp_path / "number"
    kept = first_turn(pipe)
    number.write_text("0")
    counting = [FORK.Process(target=_count_up, args=(pipe, number)) for _ in range(3)]
    for process in counting:
        process.start()
    for process in counting:
        process.join()
    assert [process.exitcode for process in counting] == [0, 0, 0]
    assert int(number.read_text()) == 3 * ROUNDS, "no step was lost"
    with kept.taken(30.0) as came:
        assert came


def test_a_turn_that_went_away_is_missed_once_only(tmp_path: Path) -> None:
    pipe = tmp_path / "turn"
    turn = first_turn(pipe)
    held = FORK.Event()
    holder = FORK.Process(target=_hold, args=(pipe, held))
    holder.start()
    assert held.wait(30)
    assert holder.pid
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    started = monotonic()
    with turn.taken(0.2) as came:
        assert not came
    assert monotonic() - started >= 0.2
    with turn.taken(30.0) as came:
        assert came, "who missed it added one"


def test_of_several_turns_one_is_left(tmp_path: Path) -> None:
    turn = first_turn(tmp_path / "turn")
    with turn.taken(30.0) as first, turn.taken(0.02) as second:
        assert (first, second) == (True, False), "two at once, as the first held it for too long"
    with turn.taken(30.0) as first, turn.taken(0.02) as second:
        assert (first, second) == (True, False), "again one"


def test_what_is_no_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FileExistsError, match="is no named pipe"):
        WritingTurn(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"
