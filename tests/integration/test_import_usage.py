"""Files of usage: every form is imported once, every wrong file is one line that names it."""

import csv
import gzip
import io
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from billing.usage.models import GpuAllocation, QuarantinedRecord, TokenFile
from billing.usage.services.replay import quarantine_replay
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.commands import GPU_ROW, ROWS, THEN, TOKEN_ROW, Manage, file, since_2024

pytestmark = pytest.mark.django_db


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Manage:
    return Manage(capsys)


@pytest.fixture
def october(tmp_path: Path) -> None:
    """A set-up and one allocation of October 2024, worth 209.62."""
    apply(tmp_path, **since_2024())
    ingest_allocations(allocation_record(**THEN))


def csv_text(kind: str, *rows: dict[str, str], columns: Sequence[str] | None = None) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns or list(ROWS[kind]))
    writer.writeheader()
    writer.writerows(rows or (ROWS[kind],))
    return text.getvalue()


@pytest.mark.parametrize("kind", ROWS)
def test_a_file_is_imported_once_in_every_form(manage: Manage, tmp_path: Path, kind: str) -> None:
    text = csv_text(kind)
    table = pa.table({name: [value or None] for name, value in ROWS[kind].items()})
    pq.write_table(table, tmp_path / "usage.parquet")
    book = Workbook()
    for cells in (ROWS[kind].keys(), ROWS[kind].values()):
        book.active.append(list(cells))
    book.save(tmp_path / "usage.xlsx")
    paths = [
        file(tmp_path, text),
        file(tmp_path, gzip.compress(text.encode()), "usage.csv.gz"),
        file(tmp_path, "\ufeff" + text, "bom.csv"),
        file(tmp_path, text.replace("\n", "\r\n"), "windows.csv"),
        tmp_path / "usage.parquet",
        tmp_path / "usage.xlsx",
    ]
    first, *others = json.loads(manage("import_usage", kind, *paths, "--json").out)["files"]
    assert (first["accepted"], first["duplicates"], first["conflicts"]) == (1, 0, 0)
    assert [(other["accepted"], other["duplicates"]) for other in others] == [(0, 1)] * 5


def test_typed_parquet_columns_are_taken(manage: Manage, tmp_path: Path) -> None:
    counts = {name: pa.array([int(TOKEN_ROW[name])]) for name in TOKEN_ROW if name.endswith("_tokens")}
    texts = {name: pa.array([TOKEN_ROW[name]]) for name in ("source", "id", "consumer", "model")}
    moment = pa.array([1_728_964_800_000_000], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({**texts, "time": moment, **counts}), tmp_path / "t.parquet")
    assert manage("import_usage", "tokens", tmp_path / "t.parquet").status == 0
    pq.write_table(
        pa.table({**texts, "time": pa.array([1_728_964_800_000_000], pa.timestamp("us")), **counts}), tmp_path / "n.parquet"
    )
    assert "time" in manage("import_usage", "tokens", tmp_path / "n.parquet").error


def wrong_files(directory: Path) -> dict[str, tuple[Path, Sequence[str]]]:
    """name: (file, what the line must say besides the file)."""
    good = csv_text("tokens")
    header, row = good.splitlines()
    packed = gzip.compress("\n".join([header, *(row.replace("req-1", f"req-{n}") for n in range(5000))]).encode())
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0xFF
    pq.write_table(pa.table({"x": [1]}), directory / "schema.parquet")
    nested = {name: [value] for name, value in TOKEN_ROW.items()}
    pq.write_table(pa.table({**nested, "output_tokens": [[1, 2]]}), directory / "nested.parquet")
    whole = (directory / "schema.parquet").read_bytes()
    (directory / "folder.csv").mkdir()
    (directory / "folder.parquet").mkdir()
    os.mkfifo(directory / "pipe.csv")
    contents: dict[str, tuple[str | bytes, str, Sequence[str]]] = {
        "an empty file": ("", "a.csv", ["empty"]),
        "an empty gz": (gzip.compress(b""), "a.csv.gz", ["empty"]),
        "no gz at all": (good, "b.csv.gz", []),
        "a gz cut short": (packed[: len(packed) // 2], "c.csv.gz", ["end"]),
        "a gz of garbage": (packed[:10] + b"\xff" * 200, "d2.csv.gz", []),
        "a gz with a flipped bit": (bytes(damaged), "d.csv.gz", []),
        "zero bytes named gz": (b"", "e.csv.gz", ["empty"]),
        "UTF-16": (good.encode("utf-16"), "f.csv", ["line 1"]),
        "GBK": ((header + "\n" + row.replace("nlp-key-1", "模型")).encode("gbk"), "g.csv", ["line 2", "UTF-8"]),
        "Latin-1": ((header + "\n" + row.replace("nlp-key-1", "é")).encode("latin-1"), "h.csv", ["line 2", "UTF-8"]),
        "NUL": (good.replace("nlp-key-1", "a\0b"), "i.csv", ["line 2", "NUL"]),
        "a line of 50 MB": (header + "\n" + "x" * 50_000_000, "j.csv", ["line 2", "longer"]),
        "an unknown column": (f"{header},cached\n{row},1\n", "k.csv", ["line 1", "'cached'"]),
        "a missing column": (good.replace("consumer,", ""), "l.csv", ["line 1", "'consumer'"]),
        "a column twice": (f"{header},model\n{row},x\n", "m.csv", ["line 1", "'model'"]),
        "a column of another case": (good.replace("consumer", "Consumer"), "n.csv", ["line 1", "'Consumer'"]),
        "another separator": (good.replace(",", ";"), "o.csv", ["line 1"]),
        "too few fields": (f"{header}\n{row}\n{row.rpartition(',')[0]}\n", "p.csv", ["line 3", "9", "10"]),
        "too many fields": (f"{header}\n{row},7\n", "q.csv", ["line 2", "11", "10"]),
        "an open quote": (f'{header}\n"{row}\n', "r.csv", ["line"]),
        "a stray quote": (f'{header}\n"a"b,{row.partition(",")[2]}\n', "s.csv", ["line 2"]),
        "a wrong count": (good.replace("1000", "-1000"), "t.csv", ["line 2", "input_tokens", "-1000"]),
        "no count": (good.replace("1000", "many"), "u.csv", ["line 2", "input_tokens", "many"]),
        "an empty required field": (good.replace("nlp-key-1", ""), "v.csv", ["line 2", "consumer"]),
        "a naive time": (good.replace("+08:00", ""), "w.csv", ["line 2", "time"]),
        "seconds since 1970": (good.replace(TOKEN_ROW["time"], "1728964800"), "x.csv", ["line 2", "time"]),
        "year 1": (good.replace("2024-10-15", "0001-01-01"), "y.csv", ["line 2", "time", "2000"]),
        "text named parquet": (good, "z.parquet", ["Parquet"]),
        "an empty parquet": (b"", "empty.parquet", ["Parquet"]),
        "a parquet cut short": (whole[:-20], "cut.parquet", ["Parquet"]),
    }
    made = {name: (file(directory, body, path), words) for name, (body, path, words) in contents.items()}
    return {
        **made,
        "a parquet of another schema": (directory / "schema.parquet", ["'x'"]),
        "a parquet with a list for a count": (directory / "nested.parquet", ["output_tokens"]),
        "a folder": (directory / "folder.csv", []),
        "a folder named parquet": (directory / "folder.parquet", []),
        "nothing there": (directory / "absent.csv", ["No such file"]),
        "nothing there named parquet": (directory / "absent.parquet", ["No such file"]),
        "nothing there named gz": (directory / "absent.csv.gz", ["No such file"]),
        "a device": (Path("/dev/null"), ["regular file"]),
        "a pipe, which can be read once only": (directory / "pipe.csv", ["regular file"]),
    }


def test_every_wrong_file_is_one_line_that_names_it(manage: Manage, tmp_path: Path) -> None:
    good = file(tmp_path, csv_text("tokens"), "good.csv")
    wrong = []
    for name, (path, words) in wrong_files(tmp_path).items():
        try:
            error = manage("import_usage", "tokens", good, path).error
        except Exception as problem:  # noqa: BLE001 - every file is tried before the test says which failed
            wrong.append((name, repr(problem)))
            continue
        if str(path) not in error or any(word not in error for word in words) or len(error) > 1000:
            wrong.append((name, error))
    assert wrong == []
    again = json.loads(manage("import_usage", "tokens", good, "--json").out)["files"][0]
    assert again["accepted"] == 1, "one wrong file refuses all: nothing was imported before"


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("quantity", "0", ["quantity", "0"]), ("quantity", "8.5", ["quantity"]), ("quantity", "", ["quantity"]),
        ("device_fraction", "NaN", ["device_fraction"]), ("device_fraction", "2", ["device_fraction", "2"]),
        ("device_fraction", "", ["device_fraction"]), ("workload", "llm", ["workload", "kind/name"]),
        ("started_at", "2024-10-10", ["started_at"]), ("ended_at", "2024-10-09T00:00:00Z", ["ended_at"]),
        ("ended_at", "", ["ended_at", "--until"]), ("namespace", "n" * 600, ["namespace"]),
        ("device_fraction", "1E-2000000", ["device_fraction"]),
    ],
)  # fmt: skip
def test_a_wrong_allocation_names_file_line_and_field(
    manage: Manage, tmp_path: Path, column: str, value: str, words: list[str]
) -> None:
    path = file(tmp_path, csv_text("gpu", {**GPU_ROW, "pod_uid": "other"}, {**GPU_ROW, column: value}))
    error = manage("import_usage", "gpu", path).error
    assert [word for word in (str(path), "line 3", *words) if word not in error] == [], error
    assert not GpuAllocation.objects.exists()


def test_a_quoted_line_break_in_a_name_is_refused_with_the_line_that_an_editor_shows(manage: Manage, tmp_path: Path) -> None:
    path = file(tmp_path, csv_text("gpu", {**GPU_ROW, "queue": "a\nb"}, {**GPU_ROW, "quantity": "x"}))
    assert "line 3: queue: contains the character \\n" in manage("import_usage", "gpu", path).error


def test_a_running_allocation_of_a_file_goes_until_its_end_and_needs_no_heartbeat(
    manage: Manage, october: None, tmp_path: Path
) -> None:
    path = file(tmp_path, csv_text("gpu", {**GPU_ROW, "pod_uid": "runs", "ended_at": ""}))
    until = "2024-10-10T01:00:00Z"
    assert manage("import_usage", "gpu", path, "--until", until).status == 0
    assert json.loads(manage("period_report", "2024-10", "--json").out)["gpu_seconds"]["charged"] == 75464 + 8 * 3600


@pytest.mark.parametrize("until", ["noon", "2024-10-10", "2024-10-10T00:00:00", "", "0001-01-01T00:00:00+14:00"])
def test_a_wrong_until_is_named(manage: Manage, tmp_path: Path, until: str) -> None:
    path = file(tmp_path, csv_text("gpu", {**GPU_ROW, "ended_at": ""}))
    assert manage("import_usage", "gpu", path, "--until", until).error


def test_the_same_start_in_another_offset_is_the_same_row(manage: Manage, tmp_path: Path) -> None:
    manage("import_usage", "gpu", file(tmp_path, csv_text("gpu")))
    again = csv_text("gpu", {**GPU_ROW, "started_at": "2024-10-10T08:00:00+08:00"})
    done = manage("import_usage", "gpu", file(tmp_path, again), "--json")
    assert json.loads(done.out)["files"][0]["duplicates"] == 1


def test_conflicting_rows_exit_3_and_name_the_line(manage: Manage, tmp_path: Path) -> None:
    path = file(tmp_path, csv_text("tokens", TOKEN_ROW, {**TOKEN_ROW, "output_tokens": "101"}))
    done = manage("import_usage", "tokens", path)
    assert (done.status, done.err.count("\n")) == (3, 1)
    assert f"{path} line 3" in done.err
    assert "1 accepted, 0 duplicates, 1 conflicts" in done.out


def test_conflicting_rows_of_a_sheet_exit_3_and_name_its_row(manage: Manage, tmp_path: Path) -> None:
    book = Workbook()
    sheet = book.create_sheet("October")
    for cells in (TOKEN_ROW.keys(), TOKEN_ROW.values(), (), {**TOKEN_ROW, "output_tokens": 101}.values()):
        sheet.append(list(cells))
    book.save(tmp_path / "usage.xlsx")
    done = manage("import_usage", "tokens", tmp_path / "usage.xlsx", "--sheet", "October")
    assert (done.status, done.err.count("\n")) == (3, 1)
    assert f"{tmp_path / 'usage.xlsx'} row 4: " in done.err
    assert "is empty" in manage("import_usage", "tokens", tmp_path / "usage.xlsx").error


@pytest.mark.parametrize("kind", ROWS)
def test_a_file_without_rows_exits_3_and_the_others_are_taken(manage: Manage, tmp_path: Path, kind: str) -> None:
    empty = file(tmp_path, ",".join(ROWS[kind]) + "\n", "empty.csv")
    done = manage("import_usage", kind, empty, file(tmp_path, csv_text(kind)))
    assert (done.status, done.err) == (3, f"{empty}: has no rows, there is nothing to import\n")
    assert "1 accepted" in done.out


def test_an_unknown_kind_is_bad_usage(manage: Manage, tmp_path: Path) -> None:
    assert "storage" in manage("import_usage", "storage", tmp_path).error


def test_capacity_that_contradicts_what_was_reported_of_the_same_time_is_a_conflict(manage: Manage, tmp_path: Path) -> None:
    """A node of 8 GPUs for the whole of October; a corrected file says 4 since the 15th, and 8 is what idle time counts."""
    october = ROWS["capacity"] | {"quantity": "8", "from": "2024-10-01T00:00:00Z", "until": "2024-11-01T00:00:00Z"}
    half = october | {"quantity": "4", "from": "2024-10-15T12:00:00Z"}
    first, second = file(tmp_path, csv_text("capacity", october)), file(tmp_path, csv_text("capacity", half), "second.csv")
    assert manage("import_usage", "capacity", first).status == 0
    done = manage("import_usage", "capacity", second)
    assert (done.status, done.out) == (3, f"{second}: 0 accepted, 0 duplicates, 1 conflicts\n")
    assert "overlaps 8 units of NVIDIA-H800 from 2024-10-01T00:00:00+00:00" in done.err
    november = half | {"from": "2024-11-01T00:00:00Z", "until": "2024-12-01T00:00:00Z"}
    again = october | {"from": "2024-10-31T00:00:00Z", "until": "2024-11-01T00:00:00Z"}
    beside = file(tmp_path, csv_text("capacity", october, november, again, half | {"node": "other"}), "third.csv")
    assert manage("import_usage", "capacity", beside).status == 0


AHEAD = {
    "gpu": ({**GPU_ROW, "ended_at": "2062-10-10T02:37:13Z"}, "ended_at 2062-10-10T02:37:13+00:00"),
    "tokens": ({**TOKEN_ROW, "id": "ahead", "time": "2062-10-15T12:00:00+08:00"}, "time 2062-10-15T12:00:00+08:00"),
    "capacity": (
        {**ROWS["capacity"], "from": "2062-10-01T00:00:00Z", "until": "2062-10-02T00:00:00Z"},
        "from 2062-10-01T00:00:00+00:00",
    ),
    "efficiency": ({**ROWS["efficiency"], "end": "2062-10-10T01:00:00Z"}, "end 2062-10-10T01:00:00+00:00"),
}


@pytest.mark.parametrize("kind", AHEAD)
def test_a_file_may_say_nothing_of_a_time_that_has_not_come(manage: Manage, tmp_path: Path, kind: str) -> None:
    """The other rows are taken; the row ahead waits in quarantine, where a person may take it in."""
    row, named = AHEAD[kind]
    good = ROWS[kind] | {"pod_uid": "other"} if kind in ("gpu", "efficiency") else ROWS[kind]
    path = file(tmp_path, csv_text(kind, row, good))
    done = manage("import_usage", kind, path, "--json")
    (answered,) = json.loads(done.out)["files"]
    assert (done.status, answered["accepted"], len(answered["rejected"])) == (3, 1, 1)
    assert done.err.startswith(f"{path} line 2: {named} lies in the future; the clock of the ledger says ")
    waiting = QuarantinedRecord.objects.get()
    assert (waiting.reason, waiting.door) == ("future", f"import_usage {kind}")
    quarantine_replay(record_id=waiting.pk, actor="ops", reason="planned", now=datetime(2026, 1, 1, tzinfo=UTC))
    assert json.loads(manage("import_usage", kind, path, "--json").out)["files"][0]["accepted"] == 0


def test_a_source_is_complete_no_further_than_the_records_that_were_taken(manage: Manage, tmp_path: Path) -> None:
    manage("import_usage", "tokens", file(tmp_path, csv_text("tokens", TOKEN_ROW, AHEAD["tokens"][0])))
    assert TokenFile.objects.get().until == datetime.fromisoformat(TOKEN_ROW["time"])


def test_a_pod_that_runs_until_a_time_to_come_is_refused(manage: Manage, tmp_path: Path) -> None:
    path = file(tmp_path, csv_text("gpu", {**GPU_ROW, "ended_at": ""}))
    done = manage("import_usage", "gpu", path, "--until", "2062-01-01T00:00:00Z")
    assert (done.status, GpuAllocation.objects.count()) == (3, 0)
    assert "line 2: observed_until 2062-01-01T00:00:00+00:00 lies in the future" in done.err


def test_capacity_may_end_later_than_now_as_planned_capacity_does(manage: Manage, tmp_path: Path) -> None:
    path = file(tmp_path, csv_text("capacity", {**ROWS["capacity"], "until": "2062-10-02T00:00:00Z"}))
    assert manage("import_usage", "capacity", path).status == 0


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("tokens", "input_tokens", "1.23457E+11"), ("tokens", "output_tokens", "1e3"), ("gpu", "quantity", "8E0"),
        ("capacity", "quantity", "8E+00"), ("efficiency", "gpu_seconds", "2.88E+04"),
    ],
)  # fmt: skip
def test_a_count_of_which_a_spreadsheet_left_some_digits_is_refused(
    manage: Manage, tmp_path: Path, kind: str, column: str, value: str
) -> None:
    path = file(tmp_path, csv_text(kind, ROWS[kind] | {column: value}))
    assert manage("import_usage", kind, path).error.startswith(f"{path} line 2: {column} {value} has an exponent")


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("tokens", "id", "1.23457E+22"), ("tokens", "id", "1,23457E+22"), ("tokens", "consumer", "1.00E+10"),
        ("gpu", "pod_uid", "1.2E-05"), ("gpu", "namespace", "2E+99"), ("efficiency", "pod_uid", "4.50E+129"),
    ],
)  # fmt: skip
def test_a_name_that_a_spreadsheet_has_cut_is_refused(
    manage: Manage, tmp_path: Path, kind: str, column: str, value: str
) -> None:
    """Requests 12345670000000000000001 and ...02 have become one; the first would be billed, the other a duplicate."""
    path = file(tmp_path, csv_text(kind, ROWS[kind] | {column: value}))
    assert manage("import_usage", kind, path).error.startswith(
        f"{path} line 2: {column} {value} is what a spreadsheet leaves of a name"
    )


def test_small_ratios_and_names_with_an_e_are_taken(manage: Manage, tmp_path: Path) -> None:
    for kind, changed in {
        "efficiency": {"mfu": "1E-2", "hfu": "4.1e-01"},
        "gpu": {"device_fraction": "1E-2", "pod_uid": "12e34", "node": "1.5E9"},
        "tokens": {"id": "7E+1", "model": "EX-1E+22"},
    }.items():  # fmt: skip
        path = file(tmp_path, csv_text(kind, ROWS[kind] | changed))
        assert json.loads(manage("import_usage", kind, path, "--json").out)["files"][0]["accepted"] == 1


def test_a_sheet_that_was_pasted_from_such_a_file_is_refused_as_well(manage: Manage, tmp_path: Path) -> None:
    for cut, words in (({"id": "1.23457E+22"}, "row 2: id"), ({"input_tokens": "1.2E+11"}, "row 2: input_tokens")):
        book = Workbook()
        for cells in (TOKEN_ROW.keys(), (TOKEN_ROW | cut).values()):
            book.active.append(list(cells))
        book.save(tmp_path / "usage.xlsx")
        assert words in manage("import_usage", "tokens", tmp_path / "usage.xlsx").error
