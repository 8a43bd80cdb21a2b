"""Fiscal years begin with any month and are named by the year in which they end; their quarters begin with them."""

from datetime import date

import pytest
from django.utils.translation import override

from billing.explorer.labels import fiscal_text
from billing.explorer.query import Query, Span, preset
from metering.intervals import FiscalQuarter, IntervalError, fiscal_quarter_of


@pytest.mark.parametrize(("month", "begins", "year", "number", "first", "first_of_year"), [
    ("2026-01", 1, 2026, 1, "2026-01", "2026-01"),
    ("2026-12", 1, 2026, 4, "2026-10", "2026-01"),
    ("2026-03", 4, 2026, 4, "2026-01", "2025-04"),
    ("2026-04", 4, 2027, 1, "2026-04", "2026-04"),
    ("2027-03", 4, 2027, 4, "2027-01", "2026-04"),
    ("2026-06", 7, 2026, 4, "2026-04", "2025-07"),
    ("2026-07", 7, 2027, 1, "2026-07", "2026-07"),
    ("2026-09", 10, 2026, 4, "2026-07", "2025-10"),
    ("2026-10", 10, 2027, 1, "2026-10", "2026-10"),
    ("2026-11", 12, 2026, 4, "2026-09", "2025-12"),
    ("2026-12", 12, 2027, 1, "2026-12", "2026-12"),
    ("2027-02", 12, 2027, 1, "2026-12", "2026-12"),
    ("2027-03", 12, 2027, 2, "2027-03", "2026-12"),
])  # fmt: skip
def test_a_month_has_its_fiscal_year_and_quarter(
    month: str, begins: int, year: int, number: int, first: str, first_of_year: str
) -> None:
    found = fiscal_quarter_of(month, begins)
    assert found == FiscalQuarter(year, number, first)
    assert found.first_of_year == first_of_year


def test_a_fiscal_year_has_twelve_months_whichever_it_begins_with() -> None:
    months = [f"{year}-{number:02d}" for year in (2025, 2026, 2027) for number in range(1, 13)]
    for begins in range(1, 13):
        of_2026 = [month for month in months if fiscal_quarter_of(month, begins).year == 2026]
        assert len(of_2026) == 12
        assert int(of_2026[0][5:]) == begins
        assert [fiscal_quarter_of(month, begins).number for month in of_2026] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        assert {fiscal_quarter_of(month, begins).first_of_year for month in of_2026} == {of_2026[0]}


def test_what_is_no_month_has_no_fiscal_year() -> None:
    with pytest.raises(IntervalError, match="must be written like 2026-10"):
        fiscal_quarter_of("2026-13", 4)


@pytest.mark.parametrize(("today", "begins", "this_year", "last_year", "this_quarter", "last_quarter"), [
    ("2028-02-29", 1, "2028-01-01 2028-12-31", "2027-01-01 2027-12-31", "2028-01-01 2028-03-31", "2027-10-01 2027-12-31"),
    ("2028-02-29", 4, "2027-04-01 2028-03-31", "2026-04-01 2027-03-31", "2028-01-01 2028-03-31", "2027-10-01 2027-12-31"),
    ("2028-02-29", 7, "2027-07-01 2028-06-30", "2026-07-01 2027-06-30", "2028-01-01 2028-03-31", "2027-10-01 2027-12-31"),
    ("2028-02-29", 10, "2027-10-01 2028-09-30", "2026-10-01 2027-09-30", "2028-01-01 2028-03-31", "2027-10-01 2027-12-31"),
    ("2028-02-29", 12, "2027-12-01 2028-11-30", "2026-12-01 2027-11-30", "2027-12-01 2028-02-29", "2027-09-01 2027-11-30"),
    ("2028-02-29", 3, "2027-03-01 2028-02-29", "2026-03-01 2027-02-28", "2027-12-01 2028-02-29", "2027-09-01 2027-11-30"),
    ("2028-03-01", 3, "2028-03-01 2029-02-28", "2027-03-01 2028-02-29", "2028-03-01 2028-05-31", "2027-12-01 2028-02-29"),
    ("2026-03-31", 4, "2025-04-01 2026-03-31", "2024-04-01 2025-03-31", "2026-01-01 2026-03-31", "2025-10-01 2025-12-31"),
    ("2026-04-01", 4, "2026-04-01 2027-03-31", "2025-04-01 2026-03-31", "2026-04-01 2026-06-30", "2026-01-01 2026-03-31"),
    ("2026-11-30", 12, "2025-12-01 2026-11-30", "2024-12-01 2025-11-30", "2026-09-01 2026-11-30", "2026-06-01 2026-08-31"),
    ("2026-12-01", 12, "2026-12-01 2027-11-30", "2025-12-01 2026-11-30", "2026-12-01 2027-02-28", "2026-09-01 2026-11-30"),
    ("2026-12-31", 1, "2026-01-01 2026-12-31", "2025-01-01 2025-12-31", "2026-10-01 2026-12-31", "2026-07-01 2026-09-30"),
])  # fmt: skip
def test_ranges_of_fiscal_years_and_quarters_begin_and_end_with_their_months(
    today: str, begins: int, this_year: str, last_year: str, this_quarter: str, last_quarter: str
) -> None:
    asked = {"this-year": this_year, "last-year": last_year, "this-quarter": this_quarter, "last-quarter": last_quarter}
    for name, days in asked.items():
        first, last = (date.fromisoformat(day) for day in days.split())
        assert preset(name, date.fromisoformat(today), begins) == Span(first, last), name


def test_other_ranges_know_no_fiscal_year() -> None:
    for name in ("this-month", "last-month", "last-7-days", "last-30-days", "last-90-days", "last-12-months"):
        assert len({preset(name, date(2028, 2, 29), begins) for begins in range(1, 13)}) == 1, name


def test_a_range_of_a_fiscal_year_says_which_one_it_is() -> None:
    def words(name: str, begins: int) -> str:
        span = preset(name, date(2026, 4, 1), begins)
        return fiscal_text(Query(span.first, span.last, name), begins)

    names = ("this-year", "last-year", "this-quarter", "last-quarter", "last-12-months", "last-month")
    assert [words(name, 4) for name in names] == ["FY2027", "FY2026", "FY2027 Q1", "FY2026 Q4", "", ""]
    assert [words(name, 1) for name in names] == ["FY2026", "FY2025", "FY2026 Q2", "FY2026 Q1", "", ""]
    with override("zh-hans"):
        assert words("this-quarter", 4) == "2027 财年 Q1"
