"""Machines from measured rates: figures by hand, refusals in one line, and the table of docs/capacity.md."""

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from billing.usage.capacity import FIELDS, FORMULAS, RATES, Figure, PlanError, figures, plan_read, shown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "capacity.md"
SIZES = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)


def planned(requests_per_day: int, **more: object) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(plan_read({"requests_per_day": requests_per_day, **more}))}


def table() -> str:
    """As the page has it: a row for each figure, a column for each size; what is a simulation is in italics."""
    plans = [planned(size) for size in SIZES]
    head = f"| Requests a day | {' | '.join(f'{size:,}' for size in SIZES)} |"
    rows = [head, "|---" * (len(SIZES) + 1) + "|"]
    for name in FORMULAS:
        cells = [_cell(plan.get(name)) for plan in plans]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    text = f"{shown(figure.value)} {figure.unit}".strip()
    return text if figure.basis == "plan" else f"*{text}*"


def test_a_hundred_million_a_day_by_hand() -> None:
    """3.1 billion a month; 1,157.4 a second, 4 times that at the peak; 4,629.6 x 8.4 us = 0.039 of a core."""
    found = planned(100_000_000)
    assert found["records_of_a_month"].value == 3_100_000_000
    assert found["peak_per_second"].value == Fraction(400_000_000, 86_400)
    assert (found["web_cores"].value, found["web_machines"].value) == (1, 2)
    assert found["ledger_tb_of_a_month"].value == Fraction("0.3689")  # 3.1e9 x 119 bytes
    assert found["recount_hours_alone"].value == Fraction(3_100_000_000, 3_955_696 * 32 * 3_600)
    assert found["spark_cores"].value == 2  # 3.1e9 / 67,361 / 3,600 / 8 = 1.6
    assert "column_store_machines" not in found


def test_single_reports_take_more_of_the_web() -> None:
    """115,740.7 a second x 219 us / 0.5 = 50.7 cores."""
    found = planned(10_000_000_000, peak_factor=1, single_share=1)
    assert (found["us_of_a_record"].value, found["web_cores"].value, found["web_machines"].value) == (219, 51, 2)


def test_beyond_one_database_a_column_store_is_planned() -> None:
    """31e9 x 120 x 64.8 bytes / 15 TB = 16.1 shards, twice each."""
    found = planned(1_000_000_000)
    assert found["share_of_one_database"].value == Fraction(31, Fraction("3.2"))
    assert (found["shards_by_disk"].value, found["column_store_machines"].value) == (17, 34)


def test_what_is_beyond_what_was_measured_is_a_simulation() -> None:
    small = planned(30_000, peak_factor=1)
    assert {small[name].basis for name in ("recount_hours_alone", "spark_cores", "ledger_tb")} == {"measured"}
    assert small["share_of_one_database"].basis == "assumed"
    large = planned(1_000_000_000)
    assert {figure.name for figure in large.values() if figure.basis == "measured"} == set()
    assert {figure.name for figure in large.values() if figure.basis == "plan"} == {
        "records_of_a_month", "records_per_second", "peak_per_second",
    }  # fmt: skip


def test_a_plan_may_bring_rates_of_its_own_machines() -> None:
    found = planned(100_000_000, measured={"ledger_bytes": 158, "batch_us": "4.2"}, load="0.25")
    assert found["ledger_tb_of_a_month"].value == Fraction("0.4898")
    assert found["us_of_a_record"].value == Fraction("4.2")


@pytest.mark.parametrize(
    ("document", "printed"),
    [
        ("[1]", "a plan is a mapping"),
        ("load: 0.5", "requests_per_day: is missing"),
        ("{requests_per_day: many}", "requests_per_day: 'many' is no number"),
        ("{requests_per_day: 0}", "must be at least 1"),
        ("{requests_per_day: 1, load: 2}", "load: must be at least 0.01 and at most 1"),
        ("{requests_per_day: 1, cores: 2}", "cores: is unknown"),
        ("{requests_per_day: 1, measured: {speed: 2}}", "speed: is unknown"),
        ("{requests_per_day: 1, measured: {batch_us: 0}}", "measured: batch_us: must be above 0"),
        ("{requests_per_day: .inf}", "is no number"),
    ],
)
def test_a_plan_that_cannot_be_computed_is_refused_by_field(document: str, printed: str) -> None:
    with pytest.raises(PlanError, match=printed):
        plan_read(yaml.safe_load(document))


def test_every_name_in_a_formula_is_a_field_a_rate_or_a_figure_before_it() -> None:
    known = {*FIELDS, *RATES}
    for figure in figures(plan_read({"requests_per_day": 10**12})):
        known.add(figure.name)
    assert known == {*FIELDS, *RATES, *FORMULAS}


def test_the_page_has_the_table_and_every_rate() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert table() in text, f"docs/capacity.md must have:\n{table()}"
    for name, rate in RATES.items():
        assert f"| `{name}` | {shown(rate.value)} {rate.unit} | {rate.source}" in text, name
    for name, (default, _, meaning) in FIELDS.items():
        assert f"| `{name}` | {'' if default is None else shown(default)} | {meaning} |" in text, name
    for name, (_, formula) in FORMULAS.items():
        assert f"| `{name}` | `{formula}` |" in text, name
