"""A team whose cost centre changes in the middle of a year: every file of a month names the one that was charged."""

import csv
import io
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.exports.journal import Chart
from billing.exports.services.journal import journal_export
from billing.invoices.services.documents import invoices_export
from tests.factories import SET_UP, apply, ingest_allocations, signed_in
from tests.factories.corrections import NOVEMBER_OVER, bill, people
from tests.factories.pages import csv_rows
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NLP, CV = SET_UP["teams"]


@pytest.fixture
def moved(tmp_path: Path) -> None:
    """nlp: 20.00 to 00120 in October; since November it is of 00130, and owes 30.00. cv: 10.00 each month."""
    people()
    apply(tmp_path, teams=[{**NLP, "cost_center": "00120"}, CV])
    ingest_allocations(
        hold(1, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", quantity=2),
        hold(2, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", quantity=1, namespace="cv"),
        hold(3, "2026-11-10T00:00:00Z", "2026-11-10T01:00:00Z", quantity=3),
        hold(4, "2026-11-10T00:00:00Z", "2026-11-10T01:00:00Z", quantity=1, namespace="cv"),
    )
    bill()
    apply(tmp_path, teams=[{**NLP, "name": "Language", "cost_center": "00130"}, CV])
    bill("2026-11", NOVEMBER_OVER)


def summed(rows: list[dict[str, str]], amount: str, **where: str) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        if all(row[name] == value for name, value in where.items()):
            sums[row["cost_center"]] += Decimal(row[amount])
    return dict(sums)


@pytest.mark.parametrize(
    ("month", "charged"),
    [("2026-10", {"00120": "20.00", "CC-220": "10.00"}), ("2026-11", {"00130": "30.00", "CC-220": "10.00"})],
)
def test_all_files_of_a_month_add_up_by_cost_centre(
    moved: None, tmp_path: Path, month: str, charged: dict[str, Any]
) -> None:
    wanted = {name: Decimal(amount) for name, amount in charged.items()}
    journal_export(month=month, path=tmp_path / "journal.csv", chart=Chart())
    posted = csv_rows((tmp_path / "journal.csv").read_bytes())
    assert summed(posted, "debit", account="internal AI compute") == wanted

    files = [path for path in invoices_export(month=month, directory=tmp_path / "out") if path.suffix == ".csv"]
    lines = [row for path in files for row in csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))]
    assert summed(lines, "amount") == wanted

    finance = signed_in("sam")
    listed = csv_rows(finance.get("/invoices/?table=invoices&as=csv").content)
    assert summed(listed, "total", month=month) == wanted
    teams = csv_rows(finance.get(f"/overview/?month={month}&table=teams&as=csv").content)
    assert summed(teams, "total") == wanted


def test_the_page_shows_and_finds_the_cost_centre_that_was_charged(moved: None) -> None:
    finance = signed_in("sam")
    pages = [finance.get(f"/overview/?month=2026-10{asked}").content.decode() for asked in ("", "&q=00120", "&q=00130")]
    assert [("00120" in page, "00130" in page, ">Language<" in page) for page in pages] == [
        (True, False, True), (True, False, True), (False, True, False)
    ]  # fmt: skip


def test_a_month_that_is_open_has_the_cost_centre_of_now(moved: None) -> None:
    ingest_allocations(hold(5, "2026-12-10T00:00:00Z", "2026-12-10T01:00:00Z", quantity=3))
    teams = csv_rows(signed_in("sam").get("/overview/?month=2026-12&table=teams&as=csv").content)
    assert summed(teams, "total") == {"00130": Decimal("30.00")}
