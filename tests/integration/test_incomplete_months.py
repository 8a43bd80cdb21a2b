"""What leaves a month that is not complete says so: teams whose invoice is not issued are named, not left out in silence."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.invoices.models import BillingPeriod
from billing.invoices.services.invoices import invoice_void, invoices_approve, invoices_issue
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, operates, person, signed_in
from tests.factories.commands import Manage
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, billed_october, credit, part, people

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FOUR_EYES = {**SET_UP["billing"], "review": "four-eyes"}


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str], db: None) -> Manage:
    return Manage(capsys)


@pytest.fixture
def half_issued(tmp_path: Path) -> None:
    """Of two drafts of October, nlp's is issued and cv's waits."""
    people()
    apply(tmp_path, billing=FOUR_EYES)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    invoices_approve(month="2026-10", actor="fin", team="nlp")
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)


def archive_name(month: str) -> str:
    return str(signed_in("sam").get(f"/invoices/documents-{month}.zip").headers["Content-Disposition"])


def test_documents_of_a_month_name_the_teams_without_one(half_issued: None, tmp_path: Path, manage: Manage) -> None:
    done = manage("export_invoices", "2026-10", "--out", tmp_path / "out")
    assert (done.status, done.out.splitlines()) == (0, [
        f"4 files of 1 document in {tmp_path / 'out'}", "  not in it: the invoice of cv, which is not issued",
    ])  # fmt: skip
    answer = json.loads(manage("export_invoices", "2026-10", "--out", tmp_path / "out", "--json").out)
    assert answer["not_issued"] == ["cv"]
    assert archive_name("2026-10") == 'attachment; filename="documents-2026-10-incomplete.zip"'

    invoices_approve(month="2026-10", actor="fin")
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    done = manage("export_invoices", "2026-10", "--out", tmp_path / "out")
    assert done.out.splitlines() == [f"8 files of 2 documents in {tmp_path / 'out'}"]
    assert archive_name("2026-10") == 'attachment; filename="documents-2026-10.zip"'


def test_a_lead_is_told_of_the_own_team_only(half_issued: None) -> None:
    person("tom", "lead", team="nlp")
    answer = signed_in("tom").get("/invoices/documents-2026-10.zip")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="documents-2026-10.zip"'


def test_a_voided_draft_that_nobody_built_again_is_a_missing_invoice(
    half_issued: None, tmp_path: Path, manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    operates(monkeypatch, "ops", "finance")
    invoice_void(month="2026-10", team="cv", reason="wrong name", actor="ops")
    issued = manage("invoice_issue", "2026-10")
    assert (issued.status, issued.err) == (
        3, "the draft of cv was voided: build it again with `manage.py invoice rebuild 2026-10 --team cv`\n"
    )  # fmt: skip
    assert "  not in it: the invoice of cv, which is not issued" in manage(
        "export_invoices", "2026-10", "--out", tmp_path / "out"
    ).out
    assert archive_name("2026-10") == 'attachment; filename="documents-2026-10-incomplete.zip"'
    assert '<span class="pill closed">' in signed_in("sam").get("/overview/?month=2026-10").content.decode()


def test_notes_of_a_month_without_invoices_are_exported_and_reconciled(tmp_path: Path, manage: Manage) -> None:
    """50.00 of October are credited in November, in which nobody uses anything."""
    billed_october(tmp_path)
    credit(part("50.00"))
    done = manage("export_invoices", "2026-11", "--out", tmp_path / "out")
    assert (done.status, done.out.splitlines()) == (0, [
        f"4 files of 1 document in {tmp_path / 'out'}", "  2026-11 is open: its invoices are to come",
    ])  # fmt: skip
    assert archive_name("2026-11") == 'attachment; filename="documents-2026-11-incomplete.zip"'

    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    done = manage("export_invoices", "2026-11", "--out", tmp_path / "out")
    assert (done.status, done.out.splitlines()) == (0, [f"4 files of 1 document in {tmp_path / 'out'}"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"AI-INFRA-CN-2026-000001.{suffix}" for suffix in ("pdf", "csv", "xlsx", "json")
    }
    report = build_report(BillingPeriod.objects.get(month="2026-11"), now=NOVEMBER_OVER)
    details = {str(check.name): str(check.detail) for check in report.checks}
    assert details["lines = documents = ledger journal = FOCUS"] == "1 documents, -50.00"


def test_a_month_of_which_there_is_nothing_says_why(tmp_path: Path, manage: Manage) -> None:
    apply(tmp_path)
    period_close(month="2026-10", actor="ops", now=datetime(2026, 11, 1, 0, 5, tzinfo=UTC))
    done = manage("export_invoices", "2026-10", "--out", tmp_path / "out")
    assert (done.status, done.err) == (2, "error: month '2026-10': no document of it is issued\n")
