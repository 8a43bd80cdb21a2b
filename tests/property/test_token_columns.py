"""Columns of token records against the same records one by one."""

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from billing.usage.store.columns import (
    DimensionNumbers,
    TokenColumns,
    copied_deltas,
    copied_entries,
    dimension_ids,
    reported_columns,
    token_columns,
    token_keys,
)
from metering.records import RecordError, TokenUsage, UncheckedTokenUsage, microseconds
from metering.token_keys import is_masked, token_key

UUIDS = st.integers(0, 2**128 - 1).flatmap(
    lambda number: st.sampled_from([4, 7, 1, 15]).map(lambda version: str(UUID(int=number, version=4)).replace(
        "-4", f"-{version:x}", 1) if version != 4 else str(UUID(int=number, version=4)))
)  # fmt: skip
PLAIN = st.integers(0, 2**128 - 1).map(lambda number: str(UUID(int=number, version=4)))
MUTATED = st.tuples(UUIDS, st.integers(0, 35), st.sampled_from("-gGA٧0 ")).map(
    lambda three: three[0][: three[1]] + three[2] + three[0][three[1] + 1 :]
)
IDS = st.one_of(UUIDS, UUIDS.map(str.upper), MUTATED, st.text(min_size=1, max_size=40).filter(lambda t: "\0" not in t))
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
NUMBERS = {"a": 1, "b": 2**31 - 1}
"""Of the dimensions, by their consumer."""
COUNT_FIELDS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip
COUNTS = st.one_of(st.integers(0, 5000), st.integers(2**15 - 2, 2**15 + 1), st.integers(2**31 - 2, 10**15))


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
        attributes=draw(st.sampled_from([None, None, {"b": "\0x", "a": 1}])),
    )  # fmt: skip


def columns_of(records: list[TokenUsage], data: Any) -> TokenColumns:
    """As of one report, or of several that share a transaction."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(records) - 1, 1)), max_size=3)) - {len(records)})
    parts = [records[start:end] for start, end in pairwise([0, *cuts, len(records)])]
    known = st.sets(st.sampled_from(sorted({record.dimension for record in records}, key=str)))
    return token_columns([
        reported_columns(part, DimensionNumbers("", {name: NUMBERS[name[1]] for name in data.draw(known)}))
        for part in parts
    ])


def numbers_of(columns: TokenColumns) -> Any:
    """With those that were not known when the report was read."""
    return dimension_ids(columns, {name: NUMBERS[name[1]] for name in columns.new_dimensions()})


@given(_records())
def test_keys_are_those_of_the_records_one_by_one(records: list[TokenUsage]) -> None:
    keys, readable = token_keys(records)
    assert [key.tobytes() for key in keys] == [token_key(record.source, record.id) for record in records]
    assert readable.tolist() == [is_masked(record.id) for record in records]


def _named(identity: str) -> TokenUsage:
    return TokenUsage(
        id=identity, source="gw", time=datetime(2026, 1, 1, tzinfo=UTC), consumer="c", model="m", input_tokens=0,
        cache_read_input_tokens=0, cache_creation_input_tokens=0, output_tokens=0, reasoning_output_tokens=0,
    )  # fmt: skip


@given(st.lists(PLAIN, min_size=1, max_size=6), st.lists(MUTATED, max_size=1), st.integers(0, 6), st.booleans())
def test_keys_of_plain_uuids_with_at_most_one_that_is_not(
    plain: list[str], other: list[str], at: int, shifted: bool
) -> None:
    identities = [*plain[:at], *other, *plain[at:]]
    if shifted and len(identities) > 1:  # the same letters altogether, cut in another place
        identities[0], identities[1] = identities[0] + identities[1][:1], identities[1][1:]
    records = [_named(identity) for identity in identities]
    keys, readable = token_keys(records)
    assert [key.tobytes() for key in keys] == [token_key("gw", identity) for identity in identities]
    assert readable.tolist() == [is_masked(identity) for identity in identities]


ANY_INSTANTS = st.datetimes(
    datetime(1990, 1, 1), datetime(2205, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, *(timezone(timedelta(minutes=offset)) for offset in (480, -570, 959, 960, -1439))]),
)  # fmt: skip
EDGES = st.sampled_from([
    datetime(2000, 1, 1, tzinfo=UTC), datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2200, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2200, 1, 1, 7, tzinfo=timezone(timedelta(hours=8))),
])  # fmt: skip
FEW = st.integers(0, 3)


@given(st.lists(st.tuples(st.one_of(ANY_INSTANTS, EDGES), FEW, FEW, FEW, FEW, FEW), min_size=1, max_size=3))
def test_all_at_once_keep_the_rules_that_each_keeps(drawn: list[tuple[Any, ...]]) -> None:
    fields = [
        dict(zip(("time", *COUNT_FIELDS), row, strict=True), id=f"{UUID(int=place, version=4)}", source="gw", consumer="c",
             model="m") for place, row in enumerate(drawn)
    ]  # fmt: skip
    columns = reported_columns([UncheckedTokenUsage(**one) for one in fields], DimensionNumbers("", {}))
    assert columns.keep_the_rules() == all(map(_is_valid, fields))


def _is_valid(fields: dict[str, Any]) -> bool:
    try:
        TokenUsage(**fields)
    except RecordError:
        return False
    return True


@given(_records(), st.data())
def test_rows_are_in_the_order_of_keys_and_name_every_repeat(records: list[TokenUsage], data: Any) -> None:
    records = records + data.draw(st.lists(st.sampled_from(records), max_size=5))
    columns = columns_of(records, data)
    keys = [row.tobytes() for row in columns.keys]
    assert all(first <= second for first, second in pairwise(keys))
    assert columns.times.tolist() == [microseconds(records[number].time) for number in columns.place]
    assert [tuple(row) for row in columns.counts.tolist()] == [records[number].counts for number in columns.place]
    firsts: dict[bytes, int] = {}
    for number, record in enumerate(records):
        firsts.setdefault(record.key, number)
    at = columns.rows_by_key(columns.first_rows())
    assert {key: columns.place[row] for key, row in at.items()} == firsts
    repeated = [(number, firsts[record.key]) for number, record in enumerate(records) if firsts[record.key] != number]
    assert sorted(columns.repeated()) == repeated
    assert columns.hex_keys(columns.first_rows()) == ",".join(key.hex() for key in sorted(firsts))


@given(_records(), st.data())
def test_what_they_add_to_the_hours_is_the_sum_of_the_records(records: list[TokenUsage], data: Any) -> None:
    columns = columns_of(records, data)
    rows = columns.first_rows()
    ids = numbers_of(columns)
    reported = copied_deltas(columns, rows, ids, 3)[19:-2]
    size = 2 + 9 * 4 + 8 + 4 + 4 + 6 * 8
    summed: dict[tuple[datetime, int], list[int]] = {}
    for number in columns.place[rows]:
        record = records[number]
        hour = record.time.replace(minute=0, second=0, microsecond=0)
        sums = summed.setdefault((hour, NUMBERS[record.consumer]), [0] * 6)
        sums[:] = [one + other for one, other in zip(sums, (1, *record.counts), strict=True)]
    found = {}
    for start in range(0, len(reported), size):
        fields, place = [], start + 2
        for length in (8, 4, 4, *[8] * 6):
            assert int.from_bytes(reported[place : place + 4], "big") == length
            fields.append(int.from_bytes(reported[place + 4 : place + 4 + length], "big"))
            place += 4 + length
        hour = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=fields[0])
        assert fields[2] == 3
        found[hour, fields[1]] = fields[3:]
    assert found == summed


@given(_records(), st.data())
def test_rows_are_copied_as_each_record_says(records: list[TokenUsage], data: Any) -> None:
    columns = columns_of(records, data)
    rows = columns.first_rows()
    ids = numbers_of(columns)
    reported, place = copied_entries(columns, rows, ids, 3), 19
    for number in columns.place[rows]:
        record, fields = records[number], []
        assert int.from_bytes(reported[place : place + 2], "big") == 11
        place += 2
        for length in (16, 8, 4, 4, 4, 4, 2, 2, 2, None, None):
            size = int.from_bytes(reported[place : place + 4], "big")
            assert length in (None, size)
            fields.append(reported[place + 4 : place + 4 + size])
            place += 4 + size
        wide = max(record.counts[:3]) > 2**31 - 1 or max(record.counts[3:]) > 2**15 - 1
        key, time, dimension, *counts, epoch, identity, rest = fields
        numbers = [int.from_bytes(one, "big", signed=True) for one in (time, dimension, *counts, epoch)]
        assert key == record.key
        assert numbers == [
            microseconds(record.time), NUMBERS[record.consumer], *([-1] * 5 if wide else record.counts), 3
        ]  # fmt: skip
        assert identity.decode() == ("" if is_masked(record.id) else record.id)
        kept = {"attributes": record.attributes, **({"counts": list(record.counts)} if wide else {})}
        assert (json.loads(rest) if rest else None) == (kept if wide or record.attributes else None)
    assert reported[place:] == b"\xff\xff"
