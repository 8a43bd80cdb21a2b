"""Real production traces, imported, closed, and compared to the cent with ten lines of arithmetic over the same files.

The traces do not belong to this project. `SUANPAN_TRACES` names a folder that holds them and their converter; without
it this suite says so and does not run. `make test` leaves it out; `make traces` runs it.
"""

import csv
from collections import defaultdict
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Home
from tests.factories.traces import trace_billed, trace_files

START, END = datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trace_files(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def invoices(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trace_billed(Home(tmp_path_factory.mktemp("home")), files)


def test_every_namespace_and_consumer_is_billed_to_the_cent(files: dict[str, Path], invoices: dict[str, Any]) -> None:
    expected: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for row in csv.DictReader(files["gpu"].read_text().splitlines()):
        start, end = (datetime.fromisoformat(row[name]) for name in ("started_at", "ended_at"))
        seconds = (min(end, END) - max(start, START)).total_seconds()
        if seconds > 0:
            devices = Fraction(row["device_fraction"]) * int(row["quantity"])
            expected["gpu", row["namespace"]] += devices * int(seconds) / 3600
    for row in csv.DictReader(files["tokens"].read_text().splitlines()):
        expected["input", row["consumer"]] += Fraction(int(row["input_tokens"]) * 2, 10**6)
        expected["output", row["consumer"]] += Fraction(int(row["output_tokens"]) * 8, 10**6)
    billed = {
        (line["token_class"] or "gpu", line["namespace"] or line["consumer"]): Decimal(line["amount"])
        for invoice in invoices["invoices"]
        for line in invoice["lines"]
    }
    assert billed == {key: _cents(value) for key, value in expected.items()}


def _cents(value: Fraction) -> Decimal:
    return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(Decimal("0.01"), ROUND_HALF_UP)
