"""Columns of token records against the same records one by one."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from billing.usage.services.token_columns import copied_deltas, token_columns, token_keys
from metering.records import TokenUsage, microseconds
from metering.token_keys import is_masked, token_key

UUIDS = st.integers(0, 2**128 - 1).flatmap(
    lambda number: st.sampled_from([4, 7, 1, 15]).map(lambda version: str(UUID(int=number, version=4)).replace(
        "-4", f"-{version:x}", 1) if version != 4 else str(UUID(int=number, version=4)))
)  # fmt: skip
MUTATED = st.tuples(UUIDS, st.integers(0, 35), st.sampled_from("-gGA٧0 ")).map(
    lambda three: three[0][: three[1]] + three[2] + three[0][three[1] + 1 :]
)
IDS = st.one_of(UUIDS, UUIDS.map(str.upper), MUTATED, st.text(min_size=1, max_size=40).filter(lambda t: "\0" not in t))
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
COUNTS = st.one_of(st.integers(0, 5000), st.integers(2**31 - 2, 10**15))


@st.composite
def _records(draw: st.DrawFn) -> list[TokenUsage]:
    return draw(st.lists(_record(), min_size=1, max_size=12))


@st.composite
def _record(draw: st.DrawFn) -> TokenUsage:
    cached, reasoning = draw(COUNTS), draw(COUNTS)
    return TokenUsage(
        id=draw(IDS), source=draw(st.sampled_from(["gw", "网关", "x"])), time=draw(INSTANTS),
        consumer=draw(st.sampled_from("ab")), model="m", input_tokens=cached, cache_read_input_tokens=cached,
        cache_creation_input_tokens=0, output_tokens=reasoning, reasoning_output_tokens=reasoning,
    )  # fmt: skip


@given(_records())
def test_keys_are_those_of_the_records_one_by_one(records: list[TokenUsage]) -> None:
    keys, readable = token_keys(records)
    assert [key.tobytes() for key in keys] == [token_key(record.source, record.id) for record in records]
    assert readable.tolist() == [is_masked(record.id) for record in records]


@given(_records(), st.data())
def test_rows_are_in_the_order_of_keys_and_name_every_repeat(records: list[TokenUsage], data: Any) -> None:
    records = records + data.draw(st.lists(st.sampled_from(records), max_size=5))
    columns = token_columns(records)
    keys = [row.tobytes() for row in columns.keys]
    assert all(first <= second for first, second in pairwise(keys))
    assert columns.times.tolist() == [microseconds(records[number].time) for number in columns.place]
    assert [tuple(row) for row in columns.counts.tolist()] == [records[number].counts for number in columns.place]
    firsts: dict[bytes, int] = {}
    for number, record in enumerate(records):
        firsts.setdefault(record.key, number)
    assert columns.numbers_by_key(columns.first_rows()) == firsts
    repeated = [(number, firsts[record.key]) for number, record in enumerate(records) if firsts[record.key] != number]
    assert sorted(columns.repeated()) == repeated
    assert columns.hex_keys(columns.first_rows()) == ",".join(key.hex() for key in sorted(firsts))


@given(_records())
def test_what_they_add_to_the_hours_is_the_sum_of_the_records(records: list[TokenUsage]) -> None:
    columns = token_columns(records)
    rows = columns.first_rows()
    ids = np.array([{"a": 1, "b": 2**31 - 1}[dimension[1]] for dimension in columns.dimensions], np.int32)
    told = copied_deltas(columns, rows, ids, 3)[19:-2]
    size = 2 + 9 * 4 + 8 + 4 + 4 + 6 * 8
    summed: dict[tuple[datetime, int], list[int]] = {}
    for number in columns.place[rows]:
        record = records[number]
        hour = record.time.replace(minute=0, second=0, microsecond=0)
        sums = summed.setdefault((hour, 1 if record.consumer == "a" else 2**31 - 1), [0] * 6)
        sums[:] = [one + other for one, other in zip(sums, (1, *record.counts), strict=True)]
    found = {}
    for start in range(0, len(told), size):
        fields, place = [], start + 2
        for length in (8, 4, 4, *[8] * 6):
            assert int.from_bytes(told[place : place + 4], "big") == length
            fields.append(int.from_bytes(told[place + 4 : place + 4 + length], "big"))
            place += 4 + length
        hour = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=fields[0])
        assert fields[2] == 3
        found[hour, fields[1]] = fields[3:]
    assert found == summed
