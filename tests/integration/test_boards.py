"""What the boards say: sums without what is only shown, notes counted once, files that hold what the page shows."""

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from django.test import Client

from billing.invoicing.models import Invoice
from billing.invoicing.services import billing_mode_put, invoices_issue, period_close
from billing.portal.tables import Column, Table, csv_of, xlsx_of
from tests.correction_makers import NOVEMBER_OVER, OCTOBER_OVER, credit, people, whole
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.integration.test_exports import POLICY, hold, sample

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance() -> Client:
    client = Client()
    client.force_login(person("everything", "finance"))
    return client


@pytest.fixture
def october(tmp_path: Path) -> None:
    """nlp owes 209.62 for devices and 10.80 for tokens; cv is only shown 60.00 and 12.00 more, for HFU 0.15."""
    people()
    apply(tmp_path, efficiency_policies=[POLICY])
    billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="first", actor="fin", now=OCTOBER_OVER)
    ingest_allocations(
        allocation_record(1, workload={"kind": "PyTorchJob", "name": "pretrain"}, queue="gold"),
        hold(2, "2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", quantity=2, namespace="cv"),
    )
    sample("2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", "21600", "0.10", "0.15", uid="uid-2")
    ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))


@pytest.fixture
def issued(october: None) -> None:
    """October is issued; in November 4.00 of nlp's first line are credited."""
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    credit(whole(1, amount=Decimal("4.00")), number=str(Invoice.objects.get(shadow=False).number))


def page(client: Client, address: str) -> Any:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return response


def test_what_is_only_shown_is_in_no_total_of_the_overview(issued: None, finance: Client) -> None:
    context = page(finance, "/?month=2026-10").context

    assert context["totals"] == {"gpu": Decimal("209.62"), "tokens": Decimal("10.80"), "adjustments": Decimal("0.00")}
    assert context["month"].total == Decimal("220.42")
    assert context["month"].shadowed == Decimal("72.00")
    assert [(point.month, point.total) for point in context["trend"]] == [("2026-10", Decimal("220.42"))]


def test_a_credit_note_counts_in_the_month_that_it_was_issued_in(issued: None, finance: Client) -> None:
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)

    response = page(finance, "/?month=2026-11")
    assert [(point.month, point.total) for point in response.context["trend"]] == [
        ("2026-10", Decimal("220.42")), ("2026-11", Decimal("-4.00")),
    ]  # fmt: skip
    assert response.context["net"].noted == Decimal("-4.00")
    assert "Credit notes and rebills of the month" in response.content.decode()


def test_the_teams_of_the_overview_as_files(issued: None, finance: Client) -> None:
    text = page(finance, "/?month=2026-10&table=teams&as=csv").content.decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["team"], row["mode"], row["total"]) for row in rows] == [
        ("nlp", "chargeback", "220.42"), ("cv", "shadow", "72.00"),
    ]  # fmt: skip

    response = page(finance, "/?month=2026-10&table=teams&as=xlsx")
    assert response["Content-Disposition"] == "attachment; filename*=UTF-8''teams-2026-10.xlsx"
    sheet = openpyxl.load_workbook(io.BytesIO(response.content)).active
    assert [cell.value for cell in sheet["I"]] == ["total", 220.42, 72]
    assert sheet["I2"].data_type == "n"


def test_a_table_that_the_page_does_not_have_is_not_there(issued: None, finance: Client) -> None:
    assert finance.get("/?table=people&as=csv").status_code == 404
    assert finance.get("/?table=teams&as=exe").status_code == 404


def test_no_cell_of_a_file_is_a_formula() -> None:
    rows = [["=1+1", 3], ["@cmd", None], [" +x", -2], ["http://a", 0]]
    table = Table("names", [Column("name"), Column("n", "count")], rows)

    assert csv_of(table).decode("utf-8-sig").splitlines() == ["name,n", "'=1+1,3", "'@cmd,", "' +x,-2", "http://a,0"]
    sheet = openpyxl.load_workbook(io.BytesIO(xlsx_of(table))).active
    assert [(row[0].value, row[0].data_type, row[1].value) for row in sheet.iter_rows(min_row=2)] == [
        ("'=1+1", "s", 3), ("'@cmd", "s", None), ("' +x", "s", -2), ("http://a", "s", 0),
    ]  # fmt: skip
    assert [cell.hyperlink for cell in sheet["A"]] == [None] * 5
