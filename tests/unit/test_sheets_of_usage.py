"""Workbooks of usage, written as people write them: a cell is taken exactly, or refused with its row and column."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from openpyxl import Workbook
from openpyxl.worksheet.formula import ArrayFormula

from billing.usage.files import UsageFileError, read_records
from metering.records import GpuAllocation, TokenUsage

GPU: dict[str, Any] = {
    "cluster": "hq-1", "namespace": "nlp", "pod": "p", "pod_uid": "0007", "resource": "nvidia.com/gpu", "quantity": 8,
    "device_fraction": 1, "accelerator": "NVIDIA-H800", "node": None, "labels": '{"user": "ana"}',
    "started_at": "2026-10-10T08:00:00+08:00", "ended_at": "2026-10-10T02:37:13Z",
}  # fmt: skip
TOKENS: dict[str, Any] = {
    "source": "gateway", "id": "req-1", "time": "2026-10-10T08:00:00+08:00", "consumer": "key-1", "model": "qwen",
    "input_tokens": 1000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 100,
    "reasoning_output_tokens": 0,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.xlsx"


def workbook(path: Path, *rows: dict[str, Any], change: Callable[[Any], None] = lambda sheet: None) -> Path:
    book = Workbook()
    sheet = book.active
    sheet.append(list(rows[0]))
    for row in rows:
        sheet.append(list(row.values()))
    change(sheet)
    book.save(path)
    return path


def refusal(kind: str, path: Path, **options: Any) -> str:
    with pytest.raises(UsageFileError) as refused:
        list(read_records(kind, path, **options))
    return str(refused.value).removeprefix(f"{path} ").removeprefix(f"{path}: ")


def test_a_sheet_gives_the_records_that_the_same_rows_of_a_csv_give(path: Path) -> None:
    workbook(path, GPU, {**GPU, "pod_uid": "0008", "quantity": 5.0, "device_fraction": 0.1})
    first, second = read_records("gpu", path)
    assert (first.line, second.line) == (2, 3)
    assert first.record == GpuAllocation(
        allocation_id="hq-1/0007/nvidia.com/gpu/2026-10-10T00:00:00+00:00", cluster="hq-1", namespace="nlp", pod="p",
        pod_uid="0007", resource="nvidia.com/gpu", quantity=8, device_fraction=Decimal("1"), accelerator="NVIDIA-H800",
        node="", started_at=datetime(2026, 10, 10, tzinfo=UTC), ended_at=datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC),
        labels={"user": "ana"},
    )  # fmt: skip
    assert (second.record.quantity, second.record.device_fraction) == (5, Decimal("0.1"))
    assert str(second.record.device_fraction) == "0.1"


def test_the_first_sheet_is_read_and_another_one_where_it_is_named(path: Path) -> None:
    book = Workbook()
    for name, identity in (("October", "req-10"), ("November", "req-11")):
        sheet = book.create_sheet(name)
        sheet.append(list(TOKENS))
        sheet.append(list({**TOKENS, "id": identity}.values()))
    book.remove(book["Sheet"])
    book.save(path)
    assert [item.record.id for item in read_records("tokens", path)] == ["req-10"]
    assert [item.record.id for item in read_records("tokens", path, sheet="November")] == ["req-11"]
    assert refusal("tokens", path, sheet="December") == "has no sheet 'December'; it has 'October', 'November'"


def test_only_a_workbook_has_sheets(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    path.write_text(",".join(TOKENS))
    assert refusal("tokens", path, sheet="October") == "has no sheets; only a file named .xlsx has some"


def test_an_empty_row_between_two_rows_is_none_and_the_numbers_stay_those_of_the_sheet(path: Path) -> None:
    workbook(
        path, TOKENS, change=lambda sheet: [sheet.cell(5, place, value) for place, value in enumerate(TOKENS.values(), 1)]
    )
    assert [item.line for item in read_records("tokens", path)] == [2, 5]


def test_a_name_that_begins_like_missing_data_stays_a_name(path: Path) -> None:
    workbook(path, {**TOKENS, "consumer": "NA", "model": "null", "id": "nan"})
    (item,) = read_records("tokens", path)
    assert isinstance(item.record, TokenUsage)
    assert (item.record.consumer, item.record.model, item.record.id) == ("NA", "null", "nan")


WRONG_CELLS: list[tuple[str, dict[str, Any], str]] = [
    ("gpu", {"quantity": 8.5}, "row 3: quantity \"8.5\": expected `int`, got `str`"),
    ("gpu", {"quantity": None}, "row 3: Object missing required field `quantity`"),
    ("gpu", {"device_fraction": 1 / 3},
     "row 3: device_fraction: the number 0.3333333333333333 has more than 15 digits, as computed or cut ones have: "
     "write the value as text"),
    ("gpu", {"quantity": True}, "row 3: quantity: contains TRUE, neither text nor number"),
    ("gpu", {"pod_uid": 7},
     "row 3: pod_uid: is a number, 7: leading zeros and digits may be lost, so format the column as text and write it "
     "again"),
    ("tokens", {"id": 1e20},
     "row 3: id: is a number, 100000000000000000000: leading zeros and digits may be lost, so format the column as text "
     "and write it again"),
    ("gpu", {"started_at": datetime(2026, 10, 10, 8)},  # noqa: DTZ001 - as in a sheet
     "row 3: started_at: is a date of the sheet, 2026-10-10T08:00:00, and a sheet knows no time zone: "
     "write it as text, with its offset"),
    ("gpu", {"ended_at": date(2026, 10, 10)},
     "row 3: ended_at: is a date of the sheet, 2026-10-10T00:00:00, and a sheet knows no time zone: "
     "write it as text, with its offset"),
    ("gpu", {"started_at": "2026-10-10 08:00"},
     "row 3: started_at \"2026-10-10 08:00\": expected an RFC 3339 instant with an offset"),
    ("tokens", {"model": date(2026, 3, 4)},
     "row 3: model: is a date of the sheet, 2026-03-04T00:00:00, and a sheet knows no time zone: "
     "write it as text, with its offset"),
    ("tokens", {"time": time(8)}, "row 3: time: contains a time, neither text nor number"),
    ("tokens", {"time": timedelta(hours=30)}, "row 3: time: contains a timedelta, neither text nor number"),
    ("tokens", {"time": 46305.333}, "row 3: time: is a number, 46305.333: leading zeros and digits may be lost, so "
     "format the column as text and write it again"),
    ("tokens", {"output_tokens": "=F2*2"},
     "row 3: output_tokens: contains the formula =F2*2: paste its value"),
    ("tokens", {"output_tokens": ArrayFormula("I3", "=SUM(F2:F2)")},
     "row 3: output_tokens: contains a formula: paste its value"),
    ("tokens", {"output_tokens": "#N/A"}, "row 3: output_tokens: contains an error such as #N/A"),
    ("tokens", {"consumer": None}, "row 3: consumer null: expected `str`, got `null`"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "cells", "message"), WRONG_CELLS)
def test_a_cell_that_is_not_exactly_what_it_should_be_names_row_and_column(
    path: Path, kind: str, cells: dict[str, Any], message: str
) -> None:
    good = GPU if kind == "gpu" else TOKENS
    workbook(path, good, {**good, **cells})
    assert refusal(kind, path) == message


WRONG_SHEETS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda sheet: sheet.merge_cells("D1:E1"), "D1:E1: cells are merged: one value for several cells is ambiguous"),
    (lambda sheet: sheet.merge_cells("D2:D3"), "D2:D3: cells are merged: one value for several cells is ambiguous"),
    (lambda sheet: sheet.insert_rows(1), "row 1: is empty; it must name the columns"),
    (lambda sheet: sheet.delete_rows(1, 9), "is empty; the first row must name the columns"),
    (lambda sheet: sheet.cell(1, 5, "Model"),
     "row 1: unknown column 'Model'; known are source, id, time, consumer, model, input_tokens, cache_read_input_tokens, "
     "cache_creation_input_tokens, output_tokens, reasoning_output_tokens, service_tier, deployment, hardware, "
     "cache_creation_1h_input_tokens, audio_input_tokens, image_input_tokens, audio_output_tokens, image_output_tokens, "
     "searches, tool_calls, tags"),
    (lambda sheet: sheet.cell(1, 5, "consumer"), "row 1: column 'consumer' is there twice"),
    (lambda sheet: sheet.delete_cols(5), "row 1: column 'model' is missing"),
    (lambda sheet: sheet.cell(3, 12, "a remark"), "row 1: column K has no name"),
    (lambda sheet: sheet.cell(1, 5, 2026), "row 1: column E has no name but 2026"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG_SHEETS)
def test_a_sheet_that_is_no_plain_table_is_refused(path: Path, change: Callable[[Any], Any], message: str) -> None:
    workbook(path, TOKENS, {**TOKENS, "id": "req-2"}, change=change)
    assert refusal("tokens", path) == message


def test_what_is_no_workbook_is_one_line(path: Path) -> None:
    workbook(path, TOKENS)
    whole = path.read_bytes()
    for content in (b"", b"source,id\n", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert refusal("tokens", path).startswith("is not a readable XLSX file: ")


def rewritten(path: Path, old: bytes, new: bytes) -> Path:
    """The same workbook with other bytes in its first sheet: Excel writes up to 17 digits, openpyxl 16."""
    with ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    assert parts["xl/worksheets/sheet1.xml"].count(old) == 1
    parts["xl/worksheets/sheet1.xml"] = parts["xl/worksheets/sheet1.xml"].replace(old, new)
    with ZipFile(path, "w", ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0.30000000000000004", "0.30000000000000004"),  # =0.1+0.2
        ("0.1000000000000001", "0.1000000000000001"),
        ("123456789012345600", "123456789012345600"),  # 123456789012345678, of which Excel keeps 15 digits
        ("1000000000000000", "1000000000000000"),
        ("1E+20", "100000000000000000000"),
    ],
)
def test_a_number_of_more_than_15_digits_is_refused_as_excel_writes_it(path: Path, written: str, shown: str) -> None:
    workbook(path, {**TOKENS, "input_tokens": 424242})
    assert refusal("tokens", rewritten(path, b"<v>424242</v>", f"<v>{written}</v>".encode())) == (
        f"row 2: input_tokens: the number {shown} has more than 15 digits, as computed or cut ones have: "
        "write the value as text"
    )


@pytest.mark.parametrize(("written", "count"), [("999999999999999", 999999999999999), ("4.2E+1", 42), ("7.0", 7)])
def test_a_number_of_15_digits_is_what_it_is(path: Path, written: str, count: int) -> None:
    workbook(path, {**TOKENS, "input_tokens": 424242})
    (item,) = read_records("tokens", rewritten(path, b"<v>424242</v>", f"<v>{written}</v>".encode()))
    assert item.record.input_tokens == count


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (b' t="n"><f>40+2</f><v>42</v>', "row 2: input_tokens: contains the formula =40+2: paste its value"),
        (b' t="d"><v>2026-10-10T08:00:00Z</v>', "row 2: input_tokens: is a date of the sheet, 2026-10-10T08:00:00, "),
        (b' t="n"><v>1E+400</v>', "is not a readable XLSX file: "),
    ],
)
def test_a_formula_a_date_and_a_number_beyond_every_float_are_not_taken(path: Path, cell: bytes, shown: str) -> None:
    workbook(path, {**TOKENS, "input_tokens": 424242})
    assert refusal("tokens", rewritten(path, b' t="n"><v>424242</v>', cell)).startswith(shown)


def test_a_damaged_sheet_inside_of_a_workbook_is_one_line(path: Path) -> None:
    rewritten(workbook(path, TOKENS), b"</sheetData>", b"")
    assert refusal("tokens", path).startswith("is not a readable XLSX file: ")


def test_a_workbook_that_is_too_large_says_what_to_use_instead(path: Path) -> None:
    path.write_bytes(b"PK\3\4" + bytes(8 * 1024 * 1024))
    assert refusal("tokens", path) == (
        "is larger than 8388608 bytes, and a workbook is read whole: save it as CSV or Parquet, which are read in parts"
    )
