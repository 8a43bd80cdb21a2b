"""The ledger acknowledges a journal: over the API, on the page, once; what it has not confirmed in time is reported."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.closing.report import build_report
from billing.exports.journal import Chart, batch_hash
from billing.exports.services.journal import AcknowledgementError, journal_acknowledge, journal_export
from billing.invoices.models import JournalExport
from billing.invoices.selectors import period_of
from billing.tenancy.models import AuditEntry
from tests.factories import person, signed_in
from tests.factories.api import program
from tests.factories.commands import Manage
from tests.factories.corrections import OCTOBER_OVER, billed_october

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
DOOR = "/api/v1/periods/2026-10/journal"
LATER = OCTOBER_OVER + timedelta(days=5)


@pytest.fixture(scope="module")
def batch(for_all_tests: Path) -> str:
    """nlp owes 1000.00 for October; the hash of its exported journal."""
    billed_october(for_all_tests)
    return export(for_all_tests)


def export(directory: Path, chart: Chart | None = None, now: Any = OCTOBER_OVER) -> str:
    path = directory / "journal.csv"
    exported = journal_export(month="2026-10", path=path, chart=chart or Chart(), exported_by="sam", now=now)
    found = batch_hash(exported.journals)
    assert path.read_text(encoding="utf-8").splitlines()[1].endswith("," + found)
    return found


def acknowledge(batch: str, reference: str = "SAP-4711") -> JournalExport:
    return journal_acknowledge(month="2026-10", batch=batch, reference=reference, actor="sam", now=LATER)


def waiting(now: Any = LATER) -> list[tuple[int, Decimal | None, bool]]:
    exceptions = build_report(period_of("2026-10"), now=now).exceptions
    return [(int(e.quantity), e.amount, e.blocks) for e in exceptions if e.kind == "journal_unacknowledged"]


def test_the_same_journal_exported_again_is_the_same_export(batch: str, tmp_path: Path) -> None:
    assert export(tmp_path, now=LATER) == batch
    (stored,) = JournalExport.objects.all()
    assert (stored.batch_hash, stored.journals, stored.debit, stored.exported_at) == (
        batch, 1, Decimal("1000.00"), OCTOBER_OVER,
    )  # fmt: skip
    assert AuditEntry.objects.filter(action="journal_export").count() == 1
    other = export(tmp_path, Chart(company_code="CN01"), LATER)
    assert other != batch
    assert JournalExport.objects.count() == 2


def test_the_ledger_acknowledges_once_and_the_database_keeps_it(batch: str) -> None:
    assert acknowledge(batch).reference == "SAP-4711"
    again = journal_acknowledge(month="2026-10", batch=batch, reference="SAP-4711", actor="lea", now=LATER)
    assert (again.acknowledged_by, again.acknowledged_at) == ("sam", LATER)
    with pytest.raises(AcknowledgementError, match="was acknowledged as SAP-4711, not as SAP-4712"):
        acknowledge(batch, "SAP-4712")
    with pytest.raises(AcknowledgementError, match="no such journal of 2026-10 was exported"):
        acknowledge("0" * 64)
    with pytest.raises(AcknowledgementError, match="name the posting in the ledger"):
        acknowledge(batch, " ")
    entry = AuditEntry.objects.get(action="journal_acknowledge")
    detail = {"reference": "SAP-4711", "batch_hash": batch, "settled": 1}
    assert (entry.actor, entry.subject, entry.detail) == ("sam", "2026-10", detail)
    for statement in ("UPDATE invoices_journalexport SET reference = 'x'", "DELETE FROM invoices_journalexport"):
        refused = pytest.raises(DatabaseError, match="was exported and stays as it is")
        with refused, transaction.atomic(), connection.cursor() as c:
            c.execute(statement)


def test_a_journal_that_the_ledger_has_not_confirmed_after_five_days_is_reported_and_holds_nothing(batch: str) -> None:
    assert waiting(LATER - timedelta(seconds=1)) == []
    assert waiting() == [(5, Decimal("1000.00"), False)]
    acknowledge(batch)
    assert waiting() == []
    reported = build_report(period_of("2026-10"), now=LATER).as_dict()["journal"]
    assert reported == {
        "batch_hash": batch, "journals": 1, "debit": "1000.00", "exported_at": "2026-11-01T00:05:00+00:00",
        "exported_by": "sam", "reference": "SAP-4711", "acknowledged_at": "2026-11-06T00:05:00+00:00",
        "acknowledged_by": "sam",
    }  # fmt: skip


def post(body: dict[str, str], *scopes: str, team: str = "") -> Any:
    return program(*scopes, team=team).post(DOOR, body, content_type="application/json")


def test_the_ledger_says_so_over_the_api(batch: str) -> None:
    body = {"batch_hash": batch, "reference": "SAP-1"}
    assert post(body, "invoices:read").status_code == 403
    assert post(body, "journal:acknowledge", team="nlp").status_code == 403
    assert post({"batch_hash": batch}, "journal:acknowledge").status_code == 400
    assert post({**body, "batch_hash": "x"}, "journal:acknowledge").status_code == 409
    assert not JournalExport.objects.exclude(acknowledged_at=None).exists()
    answer = post(body, "journal:acknowledge")
    assert (answer.status_code, answer.json()["period"], answer.json()["reference"]) == (200, "2026-10", "SAP-1")
    assert JournalExport.objects.get().acknowledged_by.startswith("token:")
    assert post(body, "journal:acknowledge").status_code == 200
    assert post({**body, "reference": "SAP-2"}, "journal:acknowledge").status_code == 409


def test_finance_says_so_on_the_page(batch: str) -> None:
    client = signed_in(person("kay", "finance"))
    assert "Not acknowledged yet" in client.get("/close/?month=2026-10").content.decode()
    assert client.post("/close/2026-10/journal/", {"batch_hash": batch, "reference": "SAP-9"}).status_code == 302
    page = client.get("/close/?month=2026-10").content.decode()
    assert "SAP-9" in page
    assert "The ledger took it" not in page
    refused = client.post("/close/2026-10/journal/", {"batch_hash": batch, "reference": "SAP-8"})
    assert (refused.status_code, "was acknowledged as SAP-9" in refused.content.decode()) == (409, True)


def test_what_the_ledger_has_is_not_exported_with_other_accounts_in_silence(
    batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ids are those of the first export: a ledger that knows them posts nothing, one that does not posts twice."""
    manage, out = Manage(capsys), tmp_path / "journal.csv"
    other = ("export_journal", "2026-10", "--out", out, "--consumer-account", "6602")
    assert manage(*other).status == 0, "nobody has posted the first one"
    acknowledge(batch)
    assert manage("export_journal", "2026-10", "--out", out).err == ""

    done = manage(*other)
    assert (done.status, done.err) == (3, (
        "the ledger has journals of this file as SAP-4711 with another chart: under the same ids nothing is posted anew\n"
    ))  # fmt: skip
    answer = json.loads(manage(*other, "--json").out)
    assert (answer["debit"], answer["posted_otherwise"]) == ("1000.00", ["SAP-4711"])

    finance = signed_in(person("kay", "finance"))
    files = [finance.post("/close/2026-10/journal/file/", {"consumer_account": account}) for account in ("", "6602")]
    assert [answer.headers["Content-Disposition"] for answer in files] == [
        'attachment; filename="journal-2026-10.csv"',
        'attachment; filename="journal-2026-10-posted-with-another-chart.csv"',
    ]
