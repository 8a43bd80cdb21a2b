"""What the workbench shows of a sheet leaves it as files: the same figures, for the inputs of the address."""

import html
import io
import re
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest
from django.test import Client

from tests.factories import apply, person, signed_in
from tests.factories.boards import SHEET
from tests.factories.pages import rows_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance(tmp_path: Path) -> Client:
    apply(tmp_path, cost_sheets=[{"name": "h800", "sheet": SHEET}])
    return signed_in(person("ana", "finance"))


def test_every_table_of_a_sheet_is_a_file(finance: Client) -> None:
    """43,800 over a year are 5 an hour, half of the hours sold 5 more, 60 % markup on both: 16."""
    page = finance.get("/prices/workbench/?sheet=h800").content.decode()
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*as=(?:csv|xlsx)[^"]*)"', page)]
    assert len(links) == 2 * page.count("<table")
    for link in links:
        response = finance.get(link)
        assert response.status_code == 200, link
        if "as=xlsx" in link:
            assert openpyxl.load_workbook(io.BytesIO(response.content)).active["A1"].value
    parts = rows_of(finance, "/prices/workbench/?sheet=h800&table=parts&as=csv")
    assert sum(Decimal(row["amount"]) for row in parts) == Decimal("16.0000")
    assert {row["component"]: row["amount"] for row in parts}["markup"] == "6.0000"


def test_a_file_follows_the_inputs_of_the_address(finance: Client) -> None:
    by_share = rows_of(finance, "/prices/workbench/?sheet=h800&table=by_share&as=csv")
    assert {row["sold_percent"]: row["price_with_markup"] for row in by_share}["50.0"] == "16.0000"
    assert finance.get("/prices/workbench/?table=parts&as=csv").status_code == 404  # an empty sheet has no price
