"""Real production traces, imported, closed, and compared to the cent with ten lines of arithmetic over the same files.

The traces do not belong to this project. `SUANPAN_TRACES` names a folder that holds them and their converter; without
it this suite says so and does not run. `make test` leaves it out; `make traces` runs it.
"""

import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Home

TRACES = os.environ.get("SUANPAN_TRACES", "")
START, END = datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not TRACES:
        pytest.fail("the traces are absent: set SUANPAN_TRACES to the folder with them and convert.py")
    directory = tmp_path_factory.mktemp("traces")
    made = {}
    for kind, name in (("gpu", "openb_pod_list_default.csv"), ("tokens", "azure_llm_2023_code.csv")):
        made[kind] = directory / f"{kind}.csv"
        converter = [sys.executable, str(Path(TRACES) / "convert.py"), kind, str(Path(TRACES) / name), str(made[kind])]
        subprocess.run(converter, check=True)
    return made


@pytest.fixture(scope="module")
def invoices(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = Home(tmp_path_factory.mktemp("home"))
    set_up = home.path / "set-up.yaml"
    set_up.write_text(json.dumps(_set_up(files)))
    home.run("apply", str(set_up))
    for kind, path in files.items():
        home.run("import_usage", kind, str(path))
        again = json.loads(home.run("import_usage", kind, str(path), "--json").stdout)["files"][0]
        assert again["accepted"] == 0, "importing the same file again changes nothing"
    home.run("period_close", "2026-10")
    home.run("invoice_issue", "2026-10")
    home.run("period_verify", "2026-10")
    answer: dict[str, Any] = json.loads(home.run("invoice_issue", "2026-10", "--json").stdout)
    return answer


def _set_up(files: dict[str, Path]) -> dict[str, Any]:
    rows = {kind: list(csv.DictReader(path.read_text().splitlines())) for kind, path in files.items()}

    def values(kind: str, column: str) -> list[str]:
        return sorted({row[column] for row in rows[kind]})

    return {
        "billing": {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "TRACE", "review": "none"},
        "teams": [{"code": "all", "name": "All"}],
        "ownership": [{"cluster": "trace", "namespace": name, "team": "all"} for name in values("gpu", "namespace")],
        "consumers": [{"source": "azure", "consumer": name, "team": "all"} for name in values("tokens", "consumer")],
        "price_versions": [
            {
                "name": "trace", "valid_from": "2026-10-01T00:00:00+08:00",
                "gpu": [{"accelerator": a, "price_per_gpu_hour": "1.0000"} for a in values("gpu", "accelerator")],
                "tokens": [{"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"}],
            }
        ],
    }  # fmt: skip


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
