"""Meters and kinds of lines are data: nobody compares the name of a kind of line, and each has its labels and accounts."""

import ast
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from billing.exports.journal import KIND_TEXT
from billing.invoices.documents.labels import KINDS, UNITS
from billing.rating.models import LineDimensions
from billing.rating.reference_data import as_counted
from pricing.meters import LINE_KINDS, METERS, line_kind
from pricing.rating import AMOUNT, DIVISOR, LineKey, Unpriced

ROOT = Path(__file__).resolve().parents[2]


def compared(tree: ast.AST) -> Iterator[int]:
    """Lines in which the kind of a line is compared with the name of one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        of_a_line = any(ast.unparse(side).endswith(("key.kind", "line.kind", 'line["kind"]', "item.kind")) for side in sides)
        texts = {one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)}
        if of_a_line and texts & LINE_KINDS.keys():
            yield node.lineno


def test_nobody_compares_the_kind_of_a_line_with_a_name() -> None:
    example = 'x = line.key.kind == "tokens"\ny = a.kind in ("gpu",)\nz = key.kind in ("idle",)'
    assert list(compared(ast.parse(example))) == [1, 3]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("billing", "pricing")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in compared(ast.parse(path.read_text()))
    ]
    assert found == []


def test_each_kind_of_line_and_each_unit_has_its_text_in_documents_and_journals() -> None:
    assert LINE_KINDS.keys() == KIND_TEXT.keys()
    assert LINE_KINDS.keys() <= KINDS.keys()
    assert DIVISOR.keys() == UNITS.keys()


def test_the_units_of_the_meters_are_those_that_charges_divide_by() -> None:
    assert DIVISOR == {"GPU-Hours": 3_600_000_000, "Slice-Hours": 3_600_000_000, "1M Tokens": 1_000_000, AMOUNT: 1}
    assert [kind.order for kind in LINE_KINDS.values()] == list(range(8))
    assert {kind.meter.name for kind in LINE_KINDS.values() if kind.meter} == METERS.keys()


def test_what_has_no_price_is_counted_in_seconds_of_devices_or_in_the_base_unit_of_its_meter() -> None:
    """An hour of a device is 3,600 GPU-seconds; 7 images are 7 images, and no millionths of a second."""
    found = [as_counted(Unpriced("x", "v1", Decimal(n), unit)) for n, unit in (
        (3_600_000_000, "device-microseconds"), (12, "tokens"), (7, "images"),
    )]  # fmt: skip
    assert found == [(Decimal(3600), "gpu_seconds"), (Decimal(12), "tokens"), (Decimal(7), "images")]


def test_a_key_names_a_model_or_a_device_by_its_meter() -> None:
    tokens = LineKey("nlp", False, False, "2026-10", "tokens", sku="llama-3-8b", token_class="input")
    idle = LineKey("nlp", False, False, "2026-10", "idle", accelerator="NVIDIA-H800", sku="NVIDIA-H800")
    assert (tokens.model, tokens.device, tokens.counts_tokens) == ("llama-3-8b", "", True)
    assert (idle.model, idle.device, idle.counts_tokens) == ("", "NVIDIA-H800", False)
    with pytest.raises(KeyError):
        line_kind("storage")


def test_a_key_is_made_of_any_row_that_has_its_fields() -> None:
    h800 = "NVIDIA-H800"
    key = LineKey("nlp", False, True, "2026-09", "gpu", "hq-1", "nlp-train", "", h800, h800, "", "GPU-Hours", "v1")
    assert LineKey.of(key) == key
    assert LineKey.of(key, team="cv").team == "cv"
    assert {*LineDimensions.names()} | {"team", "platform", "correction"} == {*LineKey.__struct_fields__}
