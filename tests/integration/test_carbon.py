"""Energy and CO2 of invoice lines: information with dated factors, never money."""

from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from pypdf import PdfReader

from billing.corrections.services.proof import period_verify
from billing.invoices.documents import PdfRenderer, render_csv
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from billing.rates.models import CarbonFactors
from billing.setup.file import SetUpFileError
from tests import factories
from tests.factories.carbon import PRICES, SHEET
from tests.factories.corrections import NOVEMBER_OVER, bill, credit, part, people, proofs_hold, whole
from tests.factories.pages import file_rows

pytestmark = pytest.mark.django_db
FACTORS = {"cluster": "hq-1", "valid_from": "2026-01-01", "location_kg_per_kwh": "0.5306", "market_kg_per_kwh": "0.6096",
           "source": "national average and residual mix, 2023"}  # fmt: skip


def billed(directory: Path, *carbon: dict[str, Any]) -> dict[str, Any]:
    """8 GPUs for an hour on 10 October, 08:00 to 09:00 in Shanghai: 8 x (0.7 + 2.4 / 8) kW x 1.3 = 10.4 kWh."""
    sheets = [{"name": "h800", **SHEET}]
    factories.apply(directory, cost_sheets=sheets, price_versions=PRICES, consumers=None, carbon=list(carbon) or None)
    factories.ingest_allocations(
        factories.allocation_record(ended_at="2026-10-10T01:00:00Z", observed_until="2026-10-10T01:00:00Z")
    )
    bill("2026-10", factories.AFTER)
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    return document_of(Invoice.objects.get())


def test_a_line_says_what_its_energy_emitted_by_location_and_by_contract(tmp_path: Path) -> None:
    """10.4 kWh x 0.5306 = 5.51824 kg; x 0.6096 = 6.33984 kg."""
    document = billed(tmp_path, FACTORS)
    (line,) = document["lines"]
    assert (line["energy_kwh"], line["co2_location_kg"], line["co2_market_kg"]) == ("10.400", "5.518", "6.340")
    assert (document["co2_location_kg"], document["co2_market_kg"]) == ("5.518", "6.340")
    invoice = Invoice.objects.get()
    csv = render_csv(document, sha256=invoice.sha256, issued_at=invoice.issued_at, status="issued").decode()
    assert "5.518" in csv
    assert "6.34" in csv


def test_notes_take_back_and_bill_again_what_a_line_emitted(tmp_path: Path) -> None:
    """Reversed and billed again with 4 of the 8 GPU-hours: 5.518 and 6.340 kg, of which the half is 2.759 and 3.170."""
    people()
    billed(tmp_path, FACTORS)
    notes = credit(whole(rebill_quantity=Decimal("4")))
    assert [
        [(line["energy_kwh"], line["co2_location_kg"], line["co2_market_kg"]) for line in document_of(note)["lines"]]
        for note in notes
    ] == [[("-10.400", "-5.518", "-6.340")], [("5.200", "2.759", "3.170")]]
    assert [document_of(note)["co2_location_kg"] for note in notes] == ["-5.518", "2.759"]
    (again,) = credit(whole(), number=str(notes[1].number))
    assert document_of(again)["lines"][0]["co2_market_kg"] == "-3.170"
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10", "2026-11")
    call_command("export_focus", "2026-11", "--out", str(tmp_path / "focus"))
    rows = file_rows(tmp_path / "focus" / "focus-cost-and-usage-2026-11.csv")
    assert sorted(row["x_CarbonKg"] for row in rows) == ["-2.759", "-5.518", "2.759"]


def test_an_amount_credited_of_a_line_and_notes_of_lines_without_factors_state_no_co2(tmp_path: Path) -> None:
    people()
    billed(tmp_path, FACTORS)
    (note,) = credit(part("10.00"))
    assert "co2_location_kg" not in document_of(note)["lines"][0] | document_of(note)


def test_focus_splits_energy_and_emissions_over_the_hours_of_a_line(tmp_path: Path) -> None:
    """Half an hour before 01:00 UTC, an hour after: 5.2 + 10.4 kWh; 15.6 x 0.5306 = 8.277 kg, 2.759 and 5.518."""
    sheets = [{"name": "h800", **SHEET}]
    factories.apply(tmp_path, cost_sheets=sheets, price_versions=PRICES, consumers=None, carbon=[FACTORS])
    end = "2026-10-10T02:00:00Z"
    factories.ingest_allocations(
        factories.allocation_record(started_at="2026-10-10T00:30:00Z", ended_at=end, observed_until=end)
    )
    bill("2026-10", factories.AFTER)
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    assert [(Decimal(row["x_EnergyKwh"]), Decimal(row["x_CarbonKg"])) for row in rows] == [
        (Decimal("5.2"), Decimal("2.759")), (Decimal("10.4"), Decimal("5.518"))
    ]  # fmt: skip


def test_a_region_and_a_year_stand_for_their_factors(tmp_path: Path) -> None:
    """China 2023: official average 0.5306, residual 0.6096 by contract; East China has no residual: 0.55 for both."""
    known = {"cluster": "hq-1", "valid_from": "2026-01-01", "region": "CN", "year": "2023"}
    east = {"cluster": "hq-2", "valid_from": "2026-01-01", "region": "CN-East", "year": "2023"}
    (line,) = billed(tmp_path, known, east)["lines"]
    assert (line["co2_location_kg"], line["co2_market_kg"]) == ("5.518", "6.340")
    stored = CarbonFactors.objects.get(cluster="hq-2")
    assert (stored.location_kg_per_kwh, stored.market_kg_per_kwh) == (Decimal("0.55"), Decimal("0.55"))
    assert stored.source == "CN-East 2023, official average"


def test_factors_that_change_are_cut_at_the_very_instant_and_leave_one_line(tmp_path: Path) -> None:
    """From 08:30 in Shanghai green power: 5.2 x 0.5306 + 5.2 x 0.5306 by location, 5.2 x 0.6096 = 3.16992 by contract."""
    green = {**FACTORS, "valid_from": "2026-10-10T08:30:00+08:00", "market_kg_per_kwh": "0"}
    document = billed(tmp_path, FACTORS, green)
    (line,) = document["lines"]
    assert (line["energy_kwh"], line["co2_location_kg"], line["co2_market_kg"]) == ("10.400", "5.518", "3.170")


def test_without_factors_for_all_of_it_a_line_says_nothing(tmp_path: Path) -> None:
    document = billed(tmp_path, {**FACTORS, "valid_from": "2026-10-10T08:30:00+08:00"})
    assert not {"co2_location_kg", "co2_market_kg"} & document["lines"][0].keys()
    assert "co2_location_kg" not in document


def test_stored_factors_are_applied_again_without_change_and_never_edited(tmp_path: Path) -> None:
    factories.apply(tmp_path, carbon=[FACTORS])
    assert factories.apply(tmp_path, carbon=[FACTORS]).changes == []
    with pytest.raises(SetUpFileError, match="are stored and differ in market_kg_per_kwh"):
        factories.apply(tmp_path, carbon=[{**FACTORS, "market_kg_per_kwh": "0"}])
    for statement in ("UPDATE {} SET location_kg_per_kwh = 0", "DELETE FROM {}", "TRUNCATE {}"):
        with pytest.raises(DatabaseError, match="never"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement.format("rates_carbonfactors"))


def test_the_page_of_an_invoice_says_what_its_energy_and_its_co2_leave_out(tmp_path: Path) -> None:
    """8 H800 for an hour at hq-1 are 10.4 kWh, 5.518 kg; 2 at hq-3, which has no factor, 2.6 kWh; the A800 has no sheet."""
    elsewhere = {"cluster": "hq-3", "namespace": "nlp", "team": "nlp", "valid_from": "2026-01-01"}
    a800 = {"accelerator": "NVIDIA-A800", "price_per_gpu_hour": "5"}
    factories.apply(
        tmp_path, cost_sheets=[{"name": "h800", **SHEET}], consumers=None, carbon=[FACTORS],
        ownership=[*factories.SET_UP["ownership"], elsewhere],
        price_versions=[{**PRICES[0], "gpu": [*PRICES[0]["gpu"], a800]}],
    )  # fmt: skip
    hour = {"ended_at": "2026-10-10T01:00:00Z", "observed_until": "2026-10-10T01:00:00Z"}
    factories.ingest_allocations(
        factories.allocation_record(1, **hour), factories.allocation_record(2, accelerator="NVIDIA-A800", **hour),
        factories.allocation_record(3, cluster="hq-3", namespace="nlp", quantity=2, **hour),
    )
    bill("2026-10", factories.AFTER)
    invoice = Invoice.objects.get()
    document = document_of(invoice)
    assert (document["energy_kwh"], document["co2_location_kg"]) == ("13.000", "5.518")
    page = factories.signed_in(factories.person("fin", "finance")).get(f"/invoices/{invoice.pk}/").content.decode()
    assert "2.6 kWh have no CO₂ factor and are in no figure of CO₂ here." in page
    assert "8.0 GPU-hours have a price without a cost sheet: their energy is not known and in no figure here." in page


def test_factors_for_a_closed_month_are_refused_because_its_documents_would_differ(tmp_path: Path) -> None:
    billed(tmp_path)
    with pytest.raises(SetUpFileError, match=r"carbon\[0\].valid_from: .* lies in a closed month"):
        factories.apply(tmp_path, cost_sheets=None, price_versions=None, consumers=None, carbon=[FACTORS])
    from_november = {**FACTORS, "valid_from": "2026-11-01"}
    factories.apply(tmp_path, cost_sheets=None, price_versions=None, consumers=None, carbon=[from_november])
    assert all(proof.holds for proof in period_verify(month="2026-10"))


OF_A_REGION = {"cluster": "hq-1", "valid_from": "2026-01-01", "region": "CN", "year": "2023"}


@pytest.mark.parametrize(
    ("factors", "reported"),
    [
        ({**FACTORS, "location_kg_per_kwh": "530"}, "location_kg_per_kwh: '530' must be a decimal from 0 to 10"),
        ({**FACTORS, "source": ""}, "source: is empty"),
        ({**FACTORS, "kg": "1"}, "kg: is no field here"),
        ({**OF_A_REGION, "year": "1999"}, "year: '1999' must be a whole number from 2000"),
        ({**OF_A_REGION, "region": "MARS"}, "region: no official average carbon factor of 'MARS' for 2023 is known"),
        ({**OF_A_REGION, "location_kg_per_kwh": "0.5"}, "location_kg_per_kwh: is given beside region"),
        ({**OF_A_REGION, "basis": "guess"}, "basis: 'guess' must be one of official average, official residual, lifecycle"),
    ],
)
def test_a_bad_factor_is_refused_by_field_and_value(tmp_path: Path, factors: dict[str, str], reported: str) -> None:
    with pytest.raises(SetUpFileError, match=rf"carbon\[0\]\.{reported}"):
        factories.apply(tmp_path, carbon=[factors])


def test_the_printed_invoice_shows_it(tmp_path: Path) -> None:
    billed(tmp_path, FACTORS)
    invoice = Invoice.objects.get()
    pdf = PdfRenderer().render(document_of(invoice), sha256=invoice.sha256, issued_at=invoice.issued_at, status="issued")
    text = " ".join(page.extract_text() for page in PdfReader(BytesIO(pdf)).pages)
    assert "5.518 kg (location), 6.340 kg (market)" in " ".join(text.split())
