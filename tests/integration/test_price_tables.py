"""A price list as a table, one row per price: the same draft as from YAML, and every error with its row and column."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from billing.rates.models import PriceDraft
from billing.rates.services import cost_sheet_put
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.cli import PROJECT
from tests.factories import apply, operates
from tests.factories.commands import Manage, since_2024
from tests.factories.prices import SHEET

pytestmark = pytest.mark.django_db

COLUMNS = (
    "version", "valid_from", "accelerator", "resource", "unit", "model", "token_class", "up_to_tokens", "price",
    "cost_sheet",
)  # fmt: skip
START = "2099-01-01T00:00:00+08:00"
ROWS: list[dict[str, Any]] = [
    {"accelerator": "NVIDIA-H800", "cost_sheet": "h800-hq"},
    {"accelerator": "NVIDIA-A800", "resource": "nvidia.com/mig-3g.20gb", "unit": "GPU-Hours", "price": "6.0000"},
    {"resource": "nvidia.com/mig-1g.10gb", "unit": "Slice-Hours", "price": "2"},
    {"model": "qwen", "token_class": "input", "up_to_tokens": "32768", "price": "1.0000"},
    {"model": "qwen", "token_class": "input", "price": "1.6000"},
    {"model": "llama", "token_class": "output", "unit": "1M Tokens", "price": "0.1234"},
    {"model": "qwen", "token_class": "output", "up_to_tokens": "32768", "price": "4.0000"},
    {"model": "qwen", "token_class": "output", "price": "6.4000"},
]
YAML = """\
price_versions:
- name: 2099-01
  valid_from: '2099-01-01T00:00:00+08:00'
  gpu:
  - {accelerator: NVIDIA-H800, cost_sheet: h800-hq}
  - {accelerator: NVIDIA-A800, resource: nvidia.com/mig-3g.20gb, price_per_gpu_hour: '6.0000'}
  - {resource: nvidia.com/mig-1g.10gb, price_per_slice_hour: '2.0000'}
  tokens:
  - {model: qwen, up_to_tokens: '32768', input: '1.0000', output: '4.0000'}
  - {model: qwen, input: '1.6000', output: '6.4000'}
  - {model: llama, output: '0.1234'}
"""


def of_version(rows: list[dict[str, Any]], name: str = "2099-01", start: Any = START) -> list[dict[str, Any]]:
    return [{"version": name, "valid_from": start, **row} for row in rows]


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())
    return path


def as_workbook(path: Path, rows: list[dict[str, Any]], title: str = "Prices") -> Path:
    book = Workbook()
    sheet = book.active
    sheet.title = title
    sheet.append(list(COLUMNS))
    for row in rows:
        sheet.append([row.get(name) for name in COLUMNS])
    book.save(path)
    return path


@pytest.fixture(scope="module")
def stored(for_all_tests: Path) -> None:
    apply(for_all_tests, **since_2024())
    cost_sheet_put(name="h800-hq", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="ana")


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str], stored: None, monkeypatch: pytest.MonkeyPatch) -> Manage:
    operates(monkeypatch, "ana", "finance", "admin")
    return Manage(capsys)


CONTENT = {
    "gpu": [
        {"accelerator": "NVIDIA-H800", "cost_sheet": "h800-hq"},
        {"accelerator": "NVIDIA-A800", "resource": "nvidia.com/mig-3g.20gb", "price_per_gpu_hour": "6.0000"},
        {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "2.0000"},
    ],
    "tokens": [
        {"model": "qwen", "up_to_tokens": "32768", "input": "1.0000", "output": "4.0000"},
        {"model": "qwen", "input": "1.6000", "output": "6.4000"},
        {"model": "llama", "output": "0.1234"},
    ],
}


def test_a_table_makes_the_draft_that_the_same_list_makes_as_yaml(manage: Manage, tmp_path: Path) -> None:
    table = as_csv(tmp_path / "prices.csv", of_version(ROWS))
    assert manage("price_version", "import", table, "--by", "ana").out == "draft 2099-01, revision 1: made\n"
    draft = PriceDraft.objects.get()
    assert (draft.content, draft.valid_from) == (CONTENT, datetime(2098, 12, 31, 16, tzinfo=UTC))
    (tmp_path / "prices.yaml").write_text(YAML)
    output = manage("price_version", "import", tmp_path / "prices.yaml", "--by", "ana").out
    assert output == "draft 2099-01, revision 1: unchanged\n"


def test_a_workbook_with_numbers_and_a_date_makes_the_same_draft(manage: Manage, tmp_path: Path) -> None:
    manage("price_version", "import", as_csv(tmp_path / "prices.csv", of_version(ROWS)), "--by", "ana")
    typed = [
        {**row, "valid_from": date(2099, 1, 1)}  # a day begins at midnight of the billing zone
        | ({"price": float(row["price"])} if "price" in row else {})
        | ({"up_to_tokens": int(row["up_to_tokens"])} if "up_to_tokens" in row else {})
        for row in of_version(ROWS)
    ]
    book = as_workbook(tmp_path / "prices.XLSX", typed)
    assert manage("price_version", "import", book).out == "draft 2099-01, revision 1: unchanged\n"
    assert manage("price_version", "import", book, "--sheet", "Prices").out == "draft 2099-01, revision 1: unchanged\n"
    assert "has no sheet 'Old'; it has 'Prices'" in manage("price_version", "import", book, "--sheet", "Old").error


def test_a_table_may_contain_several_lists(manage: Manage, tmp_path: Path) -> None:
    rows = [*of_version(ROWS[5:6]), *of_version(ROWS[:1], "2099-02", "2099-02-01")]
    done = manage("price_version", "import", as_csv(tmp_path / "prices.csv", rows))
    assert done.out == "draft 2099-01, revision 1: made\ndraft 2099-02, revision 1: made\n"
    assert PriceDraft.objects.get(subject="2099-02").content == {"gpu": CONTENT["gpu"][:1], "tokens": []}


def changed(index: int, **cells: Any) -> Callable[[], list[dict[str, Any]]]:
    """The rows with other cells in one of them; the header is row 1, so index 0 is row 2."""
    return lambda: [{**row, **(cells if place == index else {})} for place, row in enumerate(of_version(ROWS))]


WRONG = [
    (changed(1, price="six"), "3: price: 'six' must be a number from 0 to 1000000 (currency per unit, at most 4 decimals)"),
    (changed(1, price="6.00005"),
     "3: price: '6.00005' must be a number from 0 to 1000000 (currency per unit, at most 4 decimals)"),
    (changed(1, price="1,000"),
     "3: price: '1,000' must be a number from 0 to 1000000 (currency per unit, at most 4 decimals)"),
    (changed(1, price=""), "3: price: is missing: give a price, or the cost_sheet that it comes from"),
    (changed(0, price="5"), "2: price: is given beside cost_sheet: give one of the two"),
    (changed(0, cost_sheet="absent"),
     "2: cost_sheet: 'absent' is no stored cost sheet: store it first, or give the price itself"),
    (changed(1, unit=""), "3: unit: is missing"),
    (changed(1, unit="hours"), "3: unit: 'hours' must be one of GPU-Hours, Slice-Hours"),
    (changed(5, unit="1K Tokens"), "7: unit: '1K Tokens' must be one of 1M Tokens"),
    (changed(1, accelerator="", resource=""), "3: accelerator: is missing: name an accelerator, a resource or a model"),
    (changed(1, accelerator="NVIDIA-H800", resource=""), "3: accelerator: 'NVIDIA-H800' has two prices"),
    (changed(2, accelerator="NVIDIA-A800", resource="nvidia.com/mig-3g.20gb"),
     "4: resource: 'nvidia.com/mig-3g.20gb' has two prices"),
    (changed(3, accelerator="NVIDIA-H800"), "5: accelerator: is no column of a price of tokens"),
    (changed(1, token_class="input"), "3: token_class: is no column of a price of devices"),
    (changed(3, token_class="inputs"),
     "5: token_class: 'inputs' must be one of input, cache_read, cache_creation, output"),
    (changed(3, token_class=""), "5: token_class: is missing"),
    (changed(4, up_to_tokens="32768"), "6: token_class: input of qwen has a price in row 5 already"),
    (changed(3, up_to_tokens="many"), "5: up_to_tokens: 'many' must be a whole number from 1 to "),
    (changed(7, token_class="cache_read"),
     "5: token_class: cache_read: is missing: every bucket of 'qwen' prices input, output, cache_read"),
    (changed(3, token_class="", price="", cost_sheet="qwen"), "5: up_to_tokens: is given beside cost_sheet: "),
    (changed(4, valid_from="2099-02-01"), "6: valid_from: is another one than in row 2, the first of 2099-01"),
    (changed(4, valid_from="soon"), "6: valid_from: 'soon' must be a date or an RFC 3339 instant with an offset"),
    (changed(4, version=""), "6: version: is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "message"), WRONG)
@pytest.mark.parametrize(("write", "name", "word"), [(as_csv, "p.csv", "line"), (as_workbook, "p.xlsx", "row")])
def test_a_wrong_row_is_one_line_with_row_and_column_and_nothing_is_kept(
    manage: Manage, tmp_path: Path, write: Any, name: str, word: str, rows: Any, message: str
) -> None:
    path = write(tmp_path / name, rows())
    done = manage("price_version", "import", path)
    assert done.error.startswith(f"{path} {word} {message}")
    assert not PriceDraft.objects.exists()


@pytest.mark.parametrize(
    ("index", "cells", "message"),
    [
        (1, {"price": 1 / 3}, "row 3: price: the number 0.3333333333333333 has more than 15 digits"),
        (1, {"price": "=2*3"}, "row 3: price: contains the formula =2*3: paste its value"),
        (0, {"version": date(2099, 1, 1)}, "row 2: version: is a date of the sheet, 2099-01-01T00:00:00, "),
        (0, {"valid_from": datetime(2099, 1, 1, 8)},  # noqa: DTZ001 - as in a sheet
         "row 2: valid_from: 2099-01-01T08:00:00 has a time of day but no time zone: write it as text, with its offset"),
        (3, {"model": 7}, "row 5: model: is a number, 7: leading zeros and digits may be lost"),
    ],
)  # fmt: skip
def test_a_cell_that_is_not_exact_is_refused(
    manage: Manage, tmp_path: Path, index: int, cells: dict[str, Any], message: str
) -> None:
    path = as_workbook(tmp_path / "prices.xlsx", changed(index, **cells)())
    assert manage("price_version", "import", path).error.startswith(f"{path} {message}")
    assert not PriceDraft.objects.exists()


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"resource": float("nan")}, "resource: nan is a float: write text, or null where there is no value"),
        ({"accelerator": 7.0}, "accelerator: 7.0 is a float: write text, or null where there is no value"),
        ({"accelerator": b"NVIDIA-H800"}, "accelerator: b'NVIDIA-H800' is a bytes: write text"),
        ({"accelerator": True}, "accelerator: True is a bool: write text"),
        ({"accelerator": ["NVIDIA-H800"]}, "accelerator: ['NVIDIA-H800'] is a list: write text"),
        ({"price": float("nan")}, "price: nan is a float: write text, or null where there is no value"),
        ({"price": float("inf")}, "price: 'inf' must be a number from 0 to 1000000 "),
    ],
)
def test_a_value_of_parquet_that_is_no_name_is_refused(
    manage: Manage, tmp_path: Path, cells: dict[str, Any], message: str
) -> None:
    path = tmp_path / "prices.parquet"
    row = {"version": "2099-01", "valid_from": START, "accelerator": "NVIDIA-H800", "unit": "GPU-Hours", "price": 10.5}
    pq.write_table(pa.Table.from_pylist([row | cells]), path)
    assert manage("price_version", "import", path).error.startswith(f"{path} row 1: {message}")
    assert not PriceDraft.objects.exists()
    numbers = {"price": Decimal("10.5000"), "accelerator": "NVIDIA-H800", "valid_from": date(2099, 1, 1)}
    pq.write_table(pa.Table.from_pylist([row | numbers]), path)
    assert manage("price_version", "import", path).out == "draft 2099-01, revision 1: made\n"
    assert PriceDraft.objects.get().content["gpu"] == [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.5000"}]


def test_a_table_without_rows_or_with_other_columns_is_refused(manage: Manage, tmp_path: Path) -> None:
    empty = as_csv(tmp_path / "prices.csv", [])
    assert manage("price_version", "import", empty).error == f"{empty}: has no rows, there is nothing to import"
    empty.write_text("version,valid_from,model,input\n")
    assert "prices.csv line 1: unknown column 'input'; known are version, " in manage("price_version", "import", empty).error


def test_a_list_that_is_published_never_changes_by_a_table_either(manage: Manage, tmp_path: Path) -> None:
    path = as_csv(tmp_path / "prices.csv", of_version(ROWS, "2026-10"))
    assert manage("price_version", "import", path).error.startswith(f"{path}: ")


def test_a_yaml_file_has_no_sheets(manage: Manage, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(YAML)
    output = manage("price_version", "import", path, "--sheet", "Prices").error
    assert output == f"{path}: has no sheets; only a file named .xlsx has some"


def test_the_table_of_the_documentation_is_one(manage: Manage, tmp_path: Path) -> None:
    sheet = {**SHEET, "accelerator": "NVIDIA-A800"}
    cost_sheet_put(name="a800-hq", inputs=sheet, result=cost_of_gpu_hour(parse_cost_sheet(sheet)).as_dict(), actor="ana")
    text = (PROJECT / "docs" / "imports.md").read_text(encoding="utf-8").partition("```csv\n")[2].partition("```")[0]
    (tmp_path / "prices.csv").write_text(text)
    assert manage("price_version", "import", tmp_path / "prices.csv").out == "draft 2027-01, revision 1: made\n"
    draft = PriceDraft.objects.get()
    assert draft.valid_from == datetime(2026, 12, 31, 16, tzinfo=UTC)
    assert draft.content == {
        "gpu": [
            {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"},
            {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "1.8000"},
            {"accelerator": "NVIDIA-A800", "cost_sheet": "a800-hq"},
        ],
        "tokens": [
            {"model": "qwen", "up_to_tokens": "32768", "input": "1.0000", "output": "4.0000"},
            {"model": "qwen", "input": "1.6000", "output": "6.4000"},
        ],
    }
