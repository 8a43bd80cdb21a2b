"""A row of an invoice that is said to need one line does need one line, and looks as if it had been measured."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import typst

from billing.invoices.documents.content import read_document
from billing.invoices.documents.fitting import COLUMNS, WIDTHS, is_one_line, width_of
from billing.invoices.documents.layout import Printing, page_content
from billing.invoices.documents.pdf import PdfRenderer, packaged_fonts
from tests.invoice_documents import ISSUED, gpu, invoice, reward, tokens

MEASURE = b"""
#set page(width: auto)
#set text(font: "Noto Sans CJK SC", size: 100pt, number-type: "lining", number-width: "tabular", hyphenate: false)
#let weights = (400, 500)
#context [#metadata(json(bytes(sys.inputs.texts)).map(it => calc.max(..weights.map(
  weight => measure(text(weight: weight, it)).width.pt())))) <widths>]
"""
NAMES = [
    "NVIDIA-H800", "hq-1 / nlp-train", "Qwen3-235B-A22B-Instruct", "推理 / chat-1", "缓存读取 Cache read", "1,234,567.50",
    "AVATAR To Ty. fi ffl", "−20.96", "研究院-3号", "2026-10", "",
]  # fmt: skip


def widths_in_typst(texts: list[str]) -> list[float]:
    """In em, at the weight at which each is widest."""
    reported = typst.query(
        MEASURE, "<widths>", field="value", one=True, font_paths=packaged_fonts(), ignore_system_fonts=True,
        sys_inputs={"texts": json.dumps(texts)},
    )  # fmt: skip
    return [points / 100 for points in json.loads(reported)]


def test_no_text_is_wider_than_is_said():
    chance = random.Random(11)
    characters = [*WIDTHS, *"算盘研究院用量"]
    texts = [*WIDTHS, *NAMES, *("".join(chance.choices(characters, k=chance.randint(1, 24))) for _ in range(400))]
    for text, real in zip(texts, widths_in_typst(texts), strict=True):
        reported = width_of(text)
        assert reported is not None, text
        assert real - 1e-6 <= reported, (text, real, reported)


def test_every_printable_letter_of_ascii_is_known_and_what_is_not_is_left_to_be_measured():
    assert set(map(chr, range(32, 127))) <= set(WIDTHS)
    for unknown in ("Ω", "é", "한", "🙂", "，", "a\u0301"):
        assert width_of(unknown) is None
        assert width_of(f"算{unknown}") is None


def test_a_text_fits_up_to_the_width_of_its_column_and_no_further():
    fitting = int(COLUMNS[1] // (0.58 * 8))
    row = ["1", "0" * fitting, "", "", "", "", "", ""]
    assert is_one_line(row)
    assert not is_one_line([row[0], row[1] + "0", *row[2:]])
    assert not is_one_line(row, "输出 Output")
    assert not is_one_line(["1", "é", *row[2:]])
    assert is_one_line(["1", "llama", *row[2:]], "输出 Output")
    assert not is_one_line(["1", "llama", *row[2:]], "é")


def shown(*lines: dict[str, object], language: Any = "zh-en") -> dict[str, Any]:
    printing = Printing(str(ISSUED["sha256"]), datetime(2026, 11, 3, tzinfo=UTC), language, None)
    return page_content(read_document(invoice(*lines)), printing)


def rows_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for section in content["sections"] for row in (*section["rows"], *section["corrections"])]


def test_which_rows_need_one_line():
    content = shown(
        gpu(), gpu(namespace="a-namespace-of-some-length-that-has-to-break"), gpu(charge_class="Correction"),
        tokens(sku="llama", token_class="output"), tokens(sku="Qwen3-235B-A22B-Instruct"), tokens(consumer="café"), reward(),
        gpu(cluster="hq-1", namespace="namespace-17"),
    )  # fmt: skip
    # kinds stand in the order of their subtotals, corrections last: gpu, long, gpu, correction, tokens, reward
    assert [row["is_one_line"] for row in rows_of(content)] == [True, False, True, False, True, False, False, False]
    assert rows_of(content)[2]["place"] == ["hq-1 / namespace-17"]


@pytest.mark.parametrize("language", ["zh-en", "zh", "en"])
def test_a_row_that_is_not_measured_looks_as_if_it_were(language: str):
    lines = [gpu(namespace=f"team-{number}") for number in range(70)]
    lines += [tokens(sku="llama", token_class="output", consumer=f"key-{number}") for number in range(9)]
    content = shown(*lines, gpu(namespace="研究-1"), language=language)
    assert all(row["is_one_line"] for row in rows_of(content))
    when = datetime(2026, 11, 3, tzinfo=UTC)
    renderer = PdfRenderer()
    unmeasured = renderer._compile(content, when)
    for row in rows_of(content):
        row["is_one_line"] = False
    assert renderer._compile(content, when) == unmeasured
