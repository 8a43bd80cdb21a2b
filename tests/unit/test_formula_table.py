"""docs/pricing-formulas.md: every function, test, vector and field that it names exists, and no vector is left out."""

import ast
import re
from pathlib import Path

import pytest

from pricing.__main__ import parser
from pricing.commands.efficiency import CLASS_FIELDS, POLICY_FIELDS, WORKLOAD_FIELDS
from pricing.cost_sheet import FIELDS
from tests.golden.registry import VECTORS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "pricing-formulas.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("| ")]
FORMULAS = [row for row in ROWS if row[0] != "Formula"]
NAMED = re.compile(r"`((?:pricing|billing|metering|tests)/[\w/]+\.py)::(\w+)`")
ELSEWHERE = re.compile(r"[AF]\d\d")
"""Vectors of time and of amounts, which are not of prices alone."""


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(TEXT))))
def test_what_is_named_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("row", FORMULAS, ids=lambda row: row[0])
def test_every_formula_has_a_function_a_test_and_a_way_to_it(row: list[str]) -> None:
    _, function, test, way = row
    assert NAMED.search(function)
    assert NAMED.search(test) or test.startswith("vectors ")
    assert way


def test_every_vector_of_prices_stands_in_the_table() -> None:
    reported = {name for row in FORMULAS for name in re.findall(r"\b[A-F]\d\d\b", row[2])}
    assert reported <= VECTORS.keys()
    assert {name for name in VECTORS if not ELSEWHERE.fullmatch(name)} <= reported


def test_every_field_of_a_cost_sheet_and_of_a_policy_is_reached_by_a_row() -> None:
    ways = " ".join(row[3] for row in FORMULAS)
    reported = set(re.findall(r"[a-z][a-z0-9_]+", ways))
    names = {"accelerator", "currency", "name", "valid_from", "id", "team", "start", "kind", "queue", "coverage", "minutes"}
    measured = {"mfu", "hfu", "gpu_seconds", "peak_tflops", "kinds", "queues", "accelerators", "exempt_until"}
    asked = {*FIELDS, *POLICY_FIELDS, *CLASS_FIELDS, *WORKLOAD_FIELDS}
    assert asked - reported - names - measured == set()


def test_every_option_that_is_named_is_one_of_the_commands() -> None:
    asked = set(re.findall(r"`(--[a-z0-9-]+)", TEXT)) | set(re.findall(r"gpu-hour (--[a-z-]+)", TEXT))
    known = {
        option
        for command in parser()._subparsers._group_actions[0].choices.values()  # type: ignore[union-attr, attr-defined]
        for option in command._option_string_actions
    }
    assert asked - {option.split()[0] for option in known} == set()
