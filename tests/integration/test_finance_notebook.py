"""The notebook of finance, run on the files that a month's exports write."""

import runpy
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pytest
from django.core.management import call_command

from billing.invoices.issued import issued_notes
from billing.invoices.models import Invoice
from tests.cli import PROJECT
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import NOVEMBER_OVER, bill, credit, part, people
from tests.full_scenario import build_scenario, pleasant

pytestmark = pytest.mark.django_db

NOTEBOOK = PROJECT / "docs" / "notebooks" / "month.py"
Run = Callable[[str], dict[str, Any]]
NOVEMBER = {"started_at": "2026-11-02T00:00:00Z", "ended_at": "2026-11-02T01:00:00Z", "observed_until": None}


def prices_with_a800() -> list[dict[str, Any]]:
    (version,) = SET_UP["price_versions"]
    return [{**version, "gpu": [*version["gpu"], {"accelerator": "NVIDIA-A800", "price_per_gpu_hour": "6.0000"}]}]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """October: nlp 209.62 of H800 and 8.00 of tokens, cv 36.00 of A800. November: nlp 80.00, 10.80 and a credit of 64.00,
    cv 209.62 of H800 that was reported late.
    """
    people()
    apply(tmp_path, price_versions=prices_with_a800())
    ingest_allocations(
        allocation_record(1),
        allocation_record(2, namespace="cv", accelerator="NVIDIA-A800", quantity=2, ended_at="2026-10-10T03:00:00Z",
                          observed_until=None),
    )  # fmt: skip
    ingest_tokens(token_record(output_tokens=1_000_000))
    bill()
    credit(part("64.00"), code="sla", by="lea", number="AI-INFRA-2026-000002")
    ingest_allocations(allocation_record(3, namespace="cv"), allocation_record(4, **NOVEMBER))
    counts = {"input_tokens": 1_400_000, "cache_read_input_tokens": 0, "output_tokens": 1_000_000}
    ingest_tokens(token_record(2, time="2026-11-15T00:00:00Z", **counts))
    bill("2026-11", NOVEMBER_OVER)
    for month in ("2026-10", "2026-11"):
        call_command("export_focus", month, "--out", str(tmp_path / "exports"))
        call_command("export_invoices", month, "--out", str(tmp_path / "exports" / "invoices"))
    return tmp_path / "exports"


@pytest.fixture
def run(files: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(month: str) -> dict[str, Any]:
        monkeypatch.setenv("FOLDER", str(files))
        monkeypatch.setenv("MONTH", month)
        return runpy.run_path(str(NOTEBOOK))

    return run


def rows(table: pandas.DataFrame | pandas.Series) -> dict[Any, Any]:
    """The figures of a table by row, exact decimals and nothing else."""
    found = table.to_dict(orient="index") if isinstance(table, pandas.DataFrame) else table.to_dict()
    found = {name: tuple(row.values()) if isinstance(row, dict) else (row,) for name, row in found.items()}
    assert {type(figure) for row in found.values() for figure in row} <= {Decimal}
    return {name: " ".join(map(str, row)) for name, row in found.items()}


def test_the_cost_of_a_month_by_team_kind_model_and_accelerator(run: Run) -> None:
    shown = run("2026-11")
    assert list(shown["by_team"].columns) == ["credit", "gpu", "tokens", "total"]
    assert rows(shown["by_team"]) == {
        "cv": "0.00 209.62 0.00 209.62",
        "nlp": "-64.00 80.00 10.80 26.80",
        "all": "-64.00 289.62 10.80 236.42",
    }
    assert rows(shown["by_model"]) == {"llama-3-8b": "10.80"}
    assert rows(shown["by_accelerator"]) == {"NVIDIA-H800": "225.62"}
    assert rows(run("2026-10")["by_accelerator"]) == {"NVIDIA-A800": "36.00", "NVIDIA-H800": "209.62"}


def test_a_month_is_compared_with_the_one_before(run: Run) -> None:
    # -190.82 / 217.62 = -87.68... %; 173.62 / 36.00 = 482.27... %; -17.20 / 253.62 = -6.78... %
    compared = run("2026-11")["compared"]
    assert list(compared.columns) == ["before", "now", "change", "percent"]
    assert rows(compared) == {
        "cv": "36.00 209.62 173.62 482.3",
        "nlp": "217.62 26.80 -190.82 -87.7",
        "all": "253.62 236.42 -17.20 -6.8",
    }


def test_the_first_month_has_none_before_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("2026-10")["compared"] is None
    assert "no focus-cost-and-usage-2026-09.parquet: nothing to compare with" in capsys.readouterr().out


def test_the_rows_of_focus_add_up_to_every_line_of_the_invoices(
    run: Run, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("2026-11")["differing"].empty
    assert "FOCUS adds up to the invoices: 5 lines of 3 documents, 236.42 CNY" in capsys.readouterr().out
    invoice = files / "invoices" / "AI-INFRA-2026-000003.csv"
    text = invoice.read_text(encoding="utf-8-sig")
    assert text.count(",209.62,") + text.count(",80.00,") == 1
    invoice.write_text(text.replace(",209.62,", ",209.63,").replace(",80.00,", ",80.01,"))
    with pytest.raises(ValueError, match=r"(?s)differs from the invoices.*AI-INFRA-2026-000003-0001"):
        run("2026-11")
    invoice.unlink()
    with pytest.raises(ValueError, match=r"(?s)differs from the invoices.*AI-INFRA-2026-000003-0001"):
        run("2026-11")


def test_the_month_of_the_full_scenario_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_scenario(tmp_path, pleasant)
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    call_command("export_invoices", "2026-10", "--out", str(tmp_path / "invoices"))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("MONTH", "2026-10")
    shown = runpy.run_path(str(NOTEBOOK))
    documents = [*Invoice.objects.filter(period__month="2026-10", status="issued"), *issued_notes("2026-10")]
    total = sum((document.total for document in documents), Decimal("0.00"))
    assert shown["by_team"].total["all"] == total == Decimal("356.00")
    assert shown["by_model"].sum() + shown["by_accelerator"].sum() == total


def test_every_part_of_the_notebook_is_a_cell() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n")
    assert text.count("# %%\n") == 6
