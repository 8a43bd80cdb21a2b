"""Names of several months as one list: told apart by hashes, and by their texts where two share a hash."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from billing.explorer.cube import packed, unpacked
from billing.explorer.names import Coded, Integers, Joined, joined

Months = list[tuple[list[str], list[int]]]


def of(*months: tuple[list[str], list[int]]) -> Joined:
    columns = [(Coded.of(names, np.zeros(0)), np.array(rows, dtype=np.int64)) for names, rows in months]
    return joined(columns)


@contextmanager
def hashes(hash_of: Callable[[str], int]) -> Iterator[None]:
    """Names have these hashes instead of their own."""

    def hashes_of(names: Iterable[str]) -> Integers:
        return np.array([hash_of(name) for name in names], dtype="<u8")

    with patch("billing.explorer.names.hashes_of", hashes_of):
        yield


def names_of_rows(found: Joined) -> list[str]:
    return found.texts.at(found.codes).to_pylist()


def test_a_name_of_two_months_has_one_place() -> None:
    found = of((["a", "b"], [0, 1, 1]), (["c", "b"], [1, 0]))
    assert names_of_rows(found) == ["a", "b", "b", "b", "c"]
    assert found.codes[1] == found.codes[3]
    assert found.places(["c", "nobody", "b", "b"]).tolist() == [found.codes[4], -1, found.codes[1], found.codes[1]]


def test_two_names_with_one_hash_stay_two_names() -> None:
    with hashes(lambda name: 7):
        found = of((["a", "b"], [0, 1]), (["b", "c"], [0, 1]))
        assert names_of_rows(found) == ["a", "b", "b", "c"]
        assert len(set(found.codes.tolist())) == 3
        assert found.codes[1] == found.codes[2]
        assert found.places(["c", "d", "b", "a"]).tolist() == [found.codes[3], -1, found.codes[1], found.codes[0]]


def test_hashes_that_end_in_the_same_bits_are_not_the_same() -> None:
    with hashes(lambda name: ord(name) << 32):
        found = of((["a", "b"], [0, 1]), (["b", "c"], [0, 1]))
        assert names_of_rows(found) == ["a", "b", "b", "c"]
        assert found.codes[1] == found.codes[2]
        assert found.places(["d", "c", "a"]).tolist() == [-1, found.codes[3], found.codes[0]]


def test_no_month_and_no_row_have_no_names() -> None:
    assert of().codes.size == of((["a"], [])).codes.size == 0
    assert of().places(["a"]).tolist() == [-1]


def test_a_stored_column_is_the_same_when_it_is_read() -> None:
    column = Coded.of(["", "Job/训练", "a\x1fb"], np.array([2, 0, 1, 1], dtype=np.uint8))
    again = unpacked(packed(column))
    assert isinstance(again, Coded)
    assert (again.names, again.codes.tolist(), again.hashes.tolist()) == (column.names, [2, 0, 1, 1], column.hashes.tolist())
    assert again.among({"a\x1fb", "x"}).tolist() == [True, False, False, False]
    assert unpacked(packed(Coded.of([], np.zeros(0, dtype=np.uint8)))).names == []  # type: ignore[union-attr]


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=4), st.booleans())
def test_rows_keep_their_names_and_equal_names_one_place(months: list[list[str]], collide: bool) -> None:
    columns: Months = []
    for rows in months:
        names = sorted({*rows, "z"})
        columns.append((names, [names.index(name) for name in rows]))
    with hashes(lambda name: ord(name) % 3) if collide else nullcontext():
        found = of(*columns)
        rows = [name for month in months for name in month]
        assert names_of_rows(found) == rows
        assert len(set(found.codes.tolist())) == len(set(rows))
        assert found.places(rows).tolist() == found.codes.tolist()


def test_columns_are_stored_and_read_by_several_threads_at_once() -> None:
    columns = [np.random.default_rng(seed).integers(0, 1 << 40, 200_000) for seed in range(4)]

    def stored_and_read(number: int) -> bool:
        column = columns[number % len(columns)]
        return np.array_equal(unpacked(packed(column)), column)  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(stored_and_read, range(40)))
