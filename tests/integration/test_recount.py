"""A month's tokens charged anew from a Parquet file of their records, by an engine of its own."""

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from billing.closing.services.closing import period_close
from billing.rating.recount import Difference, tokens_recount
from billing.usage import token_file
from billing.usage.files import UsageFileError
from billing.usage.scope import EpochFilter
from billing.usage.store.sums import token_sums
from billing.usage.token_file import file_token_sums
from metering.intervals import billing_month
from tests.factories import SET_UP, apply, ingest_tokens, token_record
from tests.factories.commands import Manage

pytestmark = pytest.mark.django_db

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
OCTOBER = billing_month("2026-10", "Asia/Shanghai")
CHANGE = datetime(2026, 10, 15, 4, 30, tzinfo=UTC)


def parquet(directory: Path, records: list[dict[str, Any]], *, group: int | None = None, **columns: Any) -> Path:
    """The records as a file of row groups of so many, with some columns made otherwise."""
    found: dict[str, Any] = {name: [record[name] for record in records] for name in records[0]}
    found["time"] = pa.array([datetime.fromisoformat(text) for text in found["time"]], pa.timestamp("us", "UTC"))
    path = directory / "records.parquet"
    pq.write_table(
        pa.table({name: column for name, column in {**found, **columns}.items() if column is not None}), path,
        row_group_size=group,
    )  # fmt: skip
    return path


def recount(path: Path) -> Any:
    return tokens_recount(engine=partial(file_token_sums, path), window=OCTOBER, zone="Asia/Shanghai", close_seq=1)


@pytest.fixture
def records(tmp_path: Path) -> list[dict[str, Any]]:
    """Two requests before and one after a change of price, one of November; 1,000 input of which 200 from the cache."""
    dearer = {
        "name": "dearer", "valid_from": "2026-10-15T12:30:00+08:00",
        "tokens": [{"model": "llama-3-8b", "input": "3.0000", "cache_read": "0.3000", "cache_creation": "3.0000",
                    "output": "9.0000"}],
    }  # fmt: skip
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], dearer])
    times = ("2026-10-15T12:29:00+08:00", "2026-10-15T12:29:59+08:00", "2026-10-15T12:30:00+08:00")
    found = [token_record(number, time=time, input_tokens=10_000_200) for number, time in enumerate(times)]
    november = token_record(9, time="2026-11-01T00:00:00+08:00")
    ingest_tokens(*found, november)
    return [*found, november]


def test_the_records_of_a_month_give_what_was_billed(records: list[dict[str, Any]], tmp_path: Path) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    found = recount(parquet(tmp_path, records))
    assert found.holds
    assert (found.records, found.lines) == (3, 6)
    # input 20 M at 2 and 10 M at 3; read from the cache and put out: 400 at 0.2, 200 at 0.3, 200 at 8, 100 at 9 a million
    assert found.amount == Decimal("70.00")


def test_a_line_that_differs_is_named_with_both_figures(records: list[dict[str, Any]], tmp_path: Path) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    found = recount(parquet(tmp_path, [records[0], records[1] | {"output_tokens": 101}, records[3]]))
    assert not found.holds
    name = ("nlp", "nlp-key-1", "llama-3-8b")
    assert found.differences == [
        Difference(*name, "cache_read", "dearer", (Decimal(200), Decimal("0.3")), None),
        Difference(*name, "input", "dearer", (Decimal(10_000_000), Decimal(3)), None),
        Difference(*name, "output", "2026-10", (Decimal(200), Decimal(8)), (Decimal(201), Decimal(8))),
        Difference(*name, "output", "dearer", (Decimal(100), Decimal(9)), None),
    ]


def test_what_nobody_owns_and_what_has_no_price_is_reported(records: list[dict[str, Any]], tmp_path: Path) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    more = [records[0] | {"id": "x", "consumer": "nobodys"}, records[0] | {"id": "y", "model": "unknown"}]
    found = recount(parquet(tmp_path, [*records, *more]))
    assert found.differences == []
    assert found.unowned == ["litellm-hq/nobodys"]
    assert {item.sku for item in found.unpriced} == {"unknown input", "unknown cache_read", "unknown output"}
    assert not found.holds


def test_both_engines_sum_alike(tmp_path: Path) -> None:
    """Of 600 requests around two cuts of which neither is on the hour, with buckets of prompt lengths in one piece."""
    chance = random.Random(6)
    apply(tmp_path)
    found = []
    for number in range(600):
        at, read, made = OCTOBER.start + timedelta(seconds=chance.randrange(31 * 86_400)), *chance.choices(range(5000), k=2)
        found.append(
            token_record(
                number, time=at.isoformat(), consumer=chance.choice(["nlp-key-1", "é", "算盘"]),
                model=chance.choice(["a", "b"]), input_tokens=read + made + chance.randrange(9000),
                cache_read_input_tokens=read, cache_creation_input_tokens=made, output_tokens=chance.randrange(9000),
                reasoning_output_tokens=0,
            )
        )  # fmt: skip
    found.append(found[0] | {"id": "edge", "time": CHANGE.isoformat(), "input_tokens": 20_000})
    ingest_tokens(*found)
    pieces = OCTOBER.cut([CHANGE, CHANGE + timedelta(days=3, microseconds=1)])
    bounds: list[dict[str, tuple[int, ...]]] = [{}, {"a": (4096, 8192), "é": (1,)}, {}]
    path = parquet(tmp_path, found, group=100)
    assert sorted(file_token_sums(path, pieces, bounds), key=repr) == sorted(
        token_sums(pieces, EpochFilter(), bounds), key=repr
    )


@pytest.mark.parametrize(
    ("columns", "printed"),
    [
        ({"model": None}, "column 'model' is missing"),
        ({"time": ["2026-10-15T12:00:00+08:00"] * 4}, "time is string"),
        ({"time": pa.array([CHANGE.replace(tzinfo=None)] * 4, pa.timestamp("us"))}, "give timestamps with a zone"),
        ({"model": [1] * 4}, "model is int64; give text"),
        ({"output_tokens": [1.0] * 4}, "output_tokens is double"),
        ({"consumer": ["a", None, None, "b"]}, "consumer is empty in 2 records"),
        ({"output_tokens": [1, -1, 0, 1]}, "output_tokens is below 0 in 1 records"),
    ],
)
def test_a_file_that_cannot_be_summed_exactly_is_refused(
    records: list[dict[str, Any]], tmp_path: Path, columns: dict[str, Any], printed: str
) -> None:
    with pytest.raises(UsageFileError, match=printed):
        recount(parquet(tmp_path, records, **columns))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_read_in_the_unit_that_a_file_has(tmp_path: Path, unit: str) -> None:
    apply(tmp_path)
    times = [OCTOBER.start - timedelta(seconds=1), OCTOBER.start, CHANGE - timedelta(seconds=1), CHANGE, OCTOBER.end]
    path = parquet(tmp_path, [token_record(n) for n in range(5)], time=pa.array(times, pa.timestamp(unit, "Asia/Shanghai")))
    sums = file_token_sums(path, OCTOBER.cut([CHANGE]), [{}, {}])
    assert [(item.piece, item.requests) for item in sums] == [(0, 2), (1, 1)]


def test_a_nanosecond_before_a_change_is_before_it(tmp_path: Path) -> None:
    nanoseconds = int(CHANGE.timestamp()) * 10**9
    column = pa.array([nanoseconds - 1, nanoseconds], pa.timestamp("ns", "UTC"))
    path = parquet(tmp_path, [token_record(n) for n in range(2)], time=column)
    assert [(item.piece, item.requests) for item in file_token_sums(path, OCTOBER.cut([CHANGE]), [{}, {}])] == [
        (0, 1),
        (1, 1),
    ]


def test_sums_beyond_64_bits_are_exact_and_a_file_may_have_any_name(tmp_path: Path) -> None:
    """40,000 records of the largest count that a record may have: 4 x 10^19, where 64 bits end at 9.2 x 10^18."""
    home = tmp_path / "o'clock [x]*"
    home.mkdir()
    record = token_record(1, input_tokens=10**15, output_tokens=10**15 - 1)
    path = parquet(
        home, [record | {"id": f"r{number}", "time": CHANGE.isoformat()} for number in range(40_000)],
        input_tokens=pa.array([10**15] * 40_000, pa.uint64()),
    )  # fmt: skip
    (item,) = file_token_sums(path, [OCTOBER], [{}])
    assert (item.requests, item.input_tokens, item.output_tokens) == (40_000, 4 * 10**19, 4 * 10**19 - 40_000)


def test_a_record_that_is_in_the_file_again_counts_once(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """As a raw log of a gateway has it that repeats what it has no answer for; another source may use the same id."""
    elsewhere = records[0] | {"source": "elsewhere"}
    ingest_tokens(elsewhere)
    apply(tmp_path, consumers=[*SET_UP["consumers"], SET_UP["consumers"][0] | {"source": "elsewhere"}])
    period_close(month="2026-10", actor="ops", now=OVER)
    found = recount(parquet(tmp_path, [*records, records[0], elsewhere, records[0], records[2]]))
    assert (found.holds, found.records, found.amount) == (True, 4, Decimal("90.00"))


def test_repeats_are_found_among_more_records_than_the_engine_has_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three million keys, of which one is there twice, in 60 MB."""
    path = tmp_path / "many.parquet"
    duckdb.execute(
        f"""COPY (SELECT 'r-' || least(range, 2999998) AS id, 'litellm-hq' AS source, 'nlp-key-1' AS consumer,
                  'llama-3-8b' AS model, TIMESTAMPTZ '{CHANGE.isoformat()}' AS time, 1 AS input_tokens,
                  0 AS cache_read_input_tokens, 0 AS cache_creation_input_tokens, 0 AS output_tokens,
                  0 AS reasoning_output_tokens FROM range(3000000)) TO '{path}' (FORMAT parquet)"""
    )
    monkeypatch.setitem(token_file.ENGINE, "memory_limit", "60MB")
    (item,) = file_token_sums(path, [OCTOBER], [{}])
    assert (item.requests, item.input_tokens) == (2_999_999, 2_999_999)


def test_an_id_with_two_contents_is_refused_by_name(records: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(UsageFileError, match="litellm-hq has id 'req-0' with different contents"):
        recount(parquet(tmp_path, [*records, records[0] | {"output_tokens": 101}]))


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("time,model\n")
    with pytest.raises(UsageFileError, match="not a readable Parquet file"):
        recount(tmp_path / "x.parquet")
    with pytest.raises(UsageFileError, match="No such file"):
        recount(tmp_path / "y.parquet")


def test_the_command_ends_with_3_where_a_line_differs(
    records: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    counted = partial(Manage(capsys), "period_recount", "2026-10", "--tokens")
    same = counted(parquet(tmp_path, records)).out
    assert same == "3 records give 6 lines of 70.00 in sum; 0 lines differ from what was billed\n"
    path = parquet(tmp_path, records[1:])
    found = counted(path)
    assert (found.status, "billed 20000000 at 2, the file has 10000000 at 2" in found.out) == (3, True)
    printed = json.loads(counted(path, "--json").out)
    assert (printed["holds"], printed["records"], len(printed["differences"])) == (False, 2, 3)
    assert isinstance(printed["amount"], str)
    (priced,) = (row for row in printed["differences"] if row["token_class"] == "input")
    assert (priced["billed"], priced["recounted"]) == ([20_000_000, "2"], [10_000_000, "2"])
