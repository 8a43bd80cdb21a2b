"""All documents of a month, its journal and its FOCUS files by button: the same as the commands write."""

import io
import zipfile
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.http import FileResponse, StreamingHttpResponse

from billing.closing.services.operations import operation_run, operations_pending
from billing.exports.services import focus_rows
from billing.invoices.models import JournalExport
from billing.invoices.services.documents import invoices_export
from billing.tenancy.models import AuditEntry
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import bill
from tests.factories.pages import csv_rows
from tests.full_scenario import build_scenario, pleasant

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def archive(answer: StreamingHttpResponse | FileResponse) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.status_code
    with zipfile.ZipFile(io.BytesIO(b"".join(answer))) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def two_teams(for_all_tests: Path) -> None:
    apply(for_all_tests)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    bill()


def test_a_lead_takes_only_the_documents_of_the_own_team_notes_too(tmp_path: Path) -> None:
    scenario = build_scenario(tmp_path, pleasant)
    months = scenario.invoice.period.month, scenario.note.correction.period.month
    lead, other = signed_in("lead"), signed_in("other")
    names = [name for month in set(months) for name in archive(lead.get(f"/invoices/documents-{month}.zip"))]
    assert {f"{scenario.invoice.number}.pdf", f"{scenario.note.number}.pdf"} <= set(names)
    for month in set(months):
        answer = other.get(f"/invoices/documents-{month}.zip")
        assert answer.status_code == 409 or not set(archive(answer)) & set(names)


def test_the_focus_files_have_the_commitments_that_are_billed(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[{
        "name": "reserved-h800", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "100",
        "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01",
    }])  # fmt: skip
    ingest_allocations(allocation_record(1))
    bill()
    files = archive(signed_in(person("fin", "finance")).post("/close/2026-10/focus/"))
    call_command("export_focus", "2026-10", out=tmp_path / "focus")
    name = "focus-contract-commitment-2026-10.csv"
    assert files[name] == (tmp_path / "focus" / name).read_bytes()


def test_the_documents_of_a_month_are_one_archive_of_the_files_of_the_command(tmp_path: Path, two_teams: None) -> None:
    finance = signed_in(person("fin", "finance"))
    files = archive(finance.get("/invoices/documents-2026-10.zip"))
    written = invoices_export(month="2026-10", directory=tmp_path / "out")
    assert files == {path.name: path.read_bytes() for path in written}
    assert len(files) == 8  # two invoices, each as PDF, CSV, XLSX and JSON
    assert archive(finance.get("/invoices/documents-2026-10.zip")) == files
    assert AuditEntry.objects.filter(action="export", subject="documents 2026-10", actor="fin").count() == 2


def test_a_month_without_documents_says_so_on_the_page(two_teams: None) -> None:
    answer = signed_in(person("fin", "finance")).get("/invoices/documents-2026-12.zip")
    assert answer.status_code == 409
    assert "no document of 2026-12 is issued" in answer.content.decode()


def test_the_journal_by_button_is_the_file_of_the_command_and_waits_for_the_ledger(
    tmp_path: Path, two_teams: None
) -> None:
    chart = tmp_path / "chart.yaml"
    chart.write_text("company_code: '1000'\ncost_centers: {nlp: CC-7}\n")
    answer = signed_in(person("fin", "finance")).post(
        "/close/2026-10/journal/file/",
        {"accounts": SimpleUploadedFile("chart.yaml", chart.read_bytes()), "consumer_account": "6602"},
    )
    assert (answer.status_code, answer.headers["Content-Disposition"]) == (200, 'attachment; filename="journal-2026-10.csv"')
    out = tmp_path / "journal.csv"
    call_command("export_journal", "2026-10", out=out, accounts=chart, consumer_account="6602")
    assert answer.content == out.read_bytes()
    rows = csv_rows(answer.content)
    debited = [row for row in rows if row["debit"]]
    assert {(row["company_code"], row["account"]) for row in debited} == {("1000", "6602")}
    assert "CC-7" in {row["cost_center"] for row in debited}
    assert JournalExport.objects.get().exported_by == "fin"
    page = signed_in("fin").get("/close/?month=2026-10").content.decode()
    assert "Not acknowledged yet" in page


def test_a_chart_with_an_unknown_field_is_refused_beside_the_form(two_teams: None) -> None:
    answer = signed_in(person("fin", "finance")).post(
        "/close/2026-10/journal/file/",
        {"accounts": SimpleUploadedFile("chart.yaml", b"acount: x\n"), "company_code": "1000"},
    )
    page = answer.content.decode()
    assert (answer.status_code, JournalExport.objects.count()) == (409, 0)
    assert "acount" in page
    assert 'value="1000"' in page


def test_the_focus_files_by_button_are_those_of_the_command(tmp_path: Path, two_teams: None) -> None:
    files = archive(signed_in(person("ada", "auditor")).post("/close/2026-10/focus/"))
    call_command("export_focus", "2026-10", out=tmp_path / "focus")
    written = {path.name: path.read_bytes() for path in (tmp_path / "focus").iterdir()}
    assert set(files) == set(written)
    assert len(files) == 6
    texts = [name for name in files if name.endswith(".csv")]
    assert {name: files[name] for name in texts} == {name: written[name] for name in texts}
    assert AuditEntry.objects.filter(action="export", subject="focus 2026-10", actor="ada").exists()


def test_the_focus_files_of_a_large_month_are_made_by_a_worker(two_teams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_rows, "AT_ONCE", 0)
    finance = signed_in(person("fin", "finance"))
    answer = finance.post("/close/2026-10/focus/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/close/?month=2026-10#files-title")
    (waiting,) = operations_pending()
    operation_run(operation_id=waiting)
    assert len(archive(finance.post("/close/2026-10/focus/"))) == 6
