"""What leaves the installation with credit notes and rebills in it: journal, FOCUS and documents are one sum."""

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.invoices.documents import PdfRenderer, render_csv, render_xlsx
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, money, token_record
from tests.factories.corrections import (
    NOVEMBER_OVER,
    bill,
    credit,
    part,
    people,
    proofs_hold,
    whole,
)
from tests.factories.pages import csv_rows, file_rows

pytestmark = pytest.mark.django_db


def hold(gpus: int, hours: int, number: int = 1, **changed: Any) -> dict[str, Any]:
    end = f"2026-10-{10 + hours // 24:02d}T{hours % 24:02d}:00:00Z"
    return allocation_record(
        number, quantity=gpus, started_at="2026-10-10T00:00:00Z", ended_at=end, observed_until=end, **changed
    )


@pytest.fixture(scope="module")
def corrected(for_all_tests: Path) -> Path:
    """October with GPU hours, tokens and a second team; in November notes of every style, and November is closed."""
    people()
    apply(for_all_tests)
    ingest_allocations(hold(10, 10), hold(3, 7, 2, namespace="cv"))
    ingest_tokens(token_record(1, output_tokens=3_000_000), token_record(2, output_tokens=1_000_001))
    bill()
    number = str(Invoice.objects.get(team__code="nlp").number)
    credit(part("64.00"), number=number, code="sla", by="lea")
    credit(whole(rebill_price=Decimal("9.5")), whole(4, rebill_quantity=Decimal("2")), number=number)
    credit(part("10.00"), number=str(Invoice.objects.get(team__code="cv").number), code="goodwill", by="lea")
    ingest_allocations(
        allocation_record(9, started_at="2026-11-02T00:00:00Z", ended_at="2026-11-02T01:00:00Z", observed_until=None)
    )
    bill("2026-11", NOVEMBER_OVER)
    return for_all_tests


def test_documents_journal_and_focus_of_the_month_are_one_sum(corrected: Path) -> None:
    call_command("export_journal", "2026-11", "--out", str(corrected / "j.csv"))
    call_command("export_focus", "2026-11", "--out", str(corrected))
    expected = {note.number: note.total for note in Note.objects.all()}
    expected[str(Invoice.objects.get(period__month="2026-11").number)] = money("80.00")
    assert len(expected) == 5
    rows = file_rows(corrected / "j.csv")
    net: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        if row["account"] == "internal AI compute":
            net[row["invoice_number"]] += Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
    assert net == expected
    assert sum(Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0) for row in rows) == 0
    billed: dict[str, Decimal] = defaultdict(Decimal)
    usage = pq.read_table(corrected / "focus-cost-and-usage-2026-11.parquet").to_pylist()
    for row in usage:
        billed[row["InvoiceId"]] += row["BilledCost"]
    assert billed == expected


def test_focus_shows_a_note_as_corrections_of_the_hours_of_the_usage(corrected: Path) -> None:
    call_command("export_focus", "2026-11", "--out", str(corrected))
    rows = pq.read_table(corrected / "focus-cost-and-usage-2026-11.parquet").to_pylist()
    reversed_rows = [
        row for row in rows if row["InvoiceId"] == "AI-INFRA-CN-2026-000002" and row["SkuMeter"] == "GPU Hours"
        and row["ChargeCategory"] == "Usage"
    ]  # fmt: skip
    assert len(reversed_rows) == 10
    assert {row["ChargeClass"] for row in reversed_rows} == {"Correction"}
    assert [f"{row['ChargePeriodStart']:%Y-%m-%d %H}" for row in reversed_rows][:2] == ["2026-10-10 00", "2026-10-10 01"]
    assert {f"{row['BillingPeriodStart']:%Y-%m-%d %H}" for row in reversed_rows} == {"2026-10-31 16"}
    assert {(row["BilledCost"], row["PricingQuantity"]) for row in reversed_rows} == {
        (Decimal("-100.00"), Decimal("-10.000000"))
    }
    allowed = [row for row in rows if row["InvoiceId"] == "AI-INFRA-CN-2026-000001"]
    assert {(row["ChargeCategory"], row["ChargeClass"], row["PricingQuantity"]) for row in allowed} == {
        ("Credit", "Correction", None)
    }
    assert sum(row["BilledCost"] for row in allowed) == Decimal("-64.00")
    details = pq.read_table(corrected / "focus-invoice-detail-2026-11.parquet").to_pylist()
    october = str(Invoice.objects.get(team__code="nlp", period__month="2026-10").number)
    references = {row["InvoiceId"]: row["ReferenceInvoiceId"] for row in details}
    assert references["AI-INFRA-CN-2026-000002"] == references["AI-INFRA-RB-2026-000001"] == october


def test_every_document_follows_again_from_its_usage(corrected: Path) -> None:
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_notes_are_files_beside_the_invoices(corrected: Path) -> None:
    call_command("export_invoices", "2026-11", "--out", str(corrected / "out"))
    names = sorted(path.name for path in (corrected / "out").iterdir())
    assert len(names) == 20
    assert "AI-INFRA-CN-2026-000002.pdf" in names


def test_a_note_is_rendered_in_every_format(corrected: Path) -> None:
    note = Note.objects.get(number="AI-INFRA-CN-2026-000002")
    facts: Any = {"sha256": note.sha256, "issued_at": note.issued_at}
    document = document_of(note)
    rows = csv_rows(render_csv(document, **facts))
    assert {row["document_kind"] for row in rows} == {"credit"}
    assert {(row["style"], row["credits_document"], row["credits_position"]) for row in rows} >= {
        ("reversal", document["invoice"]["number"], "1")
    }
    assert sum(Decimal(row["amount"]) for row in rows) == note.total
    assert PdfRenderer().render(document, **facts).startswith(b"%PDF")
    assert render_xlsx(document, **facts).startswith(b"PK")
