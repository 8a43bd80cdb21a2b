"""Who a document is from and for: legal entity, address, tax number and contact stand in it where the installation said
them."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pypdf
import pytest

from billing.closing.services.closing import period_close
from billing.closing.services.waivers import exception_waive
from billing.corrections.note_proof import note_again
from billing.exports.journal import Chart
from billing.exports.services.focus import focus_export
from billing.exports.services.journal import journal_export
from billing.invoices.documents import PdfRenderer, render_xlsx
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from billing.invoices.services.periods import period_open
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, BillingSetup, Team
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, bill, credit, people, proofs_hold, whole
from tests.factories.pages import csv_rows

pytestmark = pytest.mark.django_db
ISSUER = {
    "legal_entity": "Example Cloud 科技有限公司", "address": "Shanghai, Zhangjiang Road 1",
    "tax_id": "91310000MA1K00000X", "contact": "billing@example.com, +86 21 0000",
}  # fmt: skip
NLP = {"legal_entity": "Example Research Ltd", "recipient": "Li Lei, Controlling"}


def response(directory: Path, **billing: Any) -> None:
    first, *others = SET_UP["teams"]
    apply(directory, billing={**SET_UP["billing"], **ISSUER, **billing}, teams=[{**first, **NLP}, *others])


@pytest.fixture
def october(tmp_path: Path) -> Path:
    people()
    response(tmp_path)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    held = {"kind": "other_legal_entity", "subject": "nlp", "reason": "one tax group", "actor": "fin"}
    exception_waive(period=period_open(month="2026-10"), now=OCTOBER_OVER, **held)
    bill()
    return tmp_path


def text_of(pdf: bytes) -> str:
    return "".join("".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages).split())


def test_the_document_copies_what_the_installation_said(october: Path) -> None:
    nlp, cv = (document_of(invoice) for invoice in Invoice.objects.order_by("-team__code"))
    assert nlp["issuer"] == {"name": "AI-INFRA", **ISSUER}
    assert nlp["recipient"] == {
        "team": "nlp", "name": "NLP Research", "cost_center": "CC-210", "legal_entity": "Example Research Ltd",
        "attention": "Li Lei, Controlling",
    }  # fmt: skip
    assert cv["recipient"] == {"team": "cv", "name": "Vision", "cost_center": "CC-220"}
    assert proofs_hold("2026-10")


def test_the_files_and_the_page_show_it(october: Path) -> None:
    invoice = Invoice.objects.get(team__code="nlp")
    facts: dict[str, Any] = {"sha256": invoice.sha256, "issued_at": invoice.issued_at}
    printed = text_of(PdfRenderer().render(document_of(invoice), **facts))
    for words in (*ISSUER.values(), *NLP.values(), "法人主体", "Tax ID", "Attention"):
        assert "".join(words.split()) in printed, words
    sheet = openpyxl.load_workbook(io.BytesIO(render_xlsx(document_of(invoice), **facts))).worksheets[0]
    cells = {str(cell.value) for row in sheet.iter_rows() for cell in row if cell.value}
    assert {*ISSUER.values(), *NLP.values()} <= cells
    client = signed_in(person("fin-2", "finance"))
    page = client.get(f"/invoices/{invoice.pk}/").content.decode()
    for words in (ISSUER["legal_entity"], ISSUER["tax_id"], ISSUER["contact"], *NLP.values()):
        assert words in page, words


def test_an_issued_document_stays_as_it_was_and_a_note_says_what_holds_now(october: Path) -> None:
    before = Invoice.objects.get(team__code="nlp").document
    response(october, legal_entity="Example Cloud Holding", tax_id="")
    assert Invoice.objects.get(team__code="nlp").document == before
    assert proofs_hold("2026-10")
    number = Invoice.objects.get(team__code="nlp").number
    (note,) = credit(whole(), number=str(number))
    note.refresh_from_db()
    issuer = json.loads(note.document)["issuer"]
    assert (issuer["legal_entity"], "tax_id" in issuer) == ("Example Cloud Holding", False)
    assert note_again(note) == json.loads(note.document)


def test_where_nobody_said_anything_the_document_has_no_word_of_it(tmp_path: Path) -> None:
    people()
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    bill()
    document = document_of(Invoice.objects.get())
    assert document["issuer"] == {"name": "AI-INFRA"}
    assert sorted(document["recipient"]) == ["cost_center", "name", "team"]
    detail = AuditEntry.objects.get(action="billing_setup_put").detail["after"]
    assert not detail.keys() & {"legal_entity", "address", "tax_id", "contact"}


def test_the_log_says_what_changed_and_a_text_that_is_too_long_is_refused(tmp_path: Path) -> None:
    apply(tmp_path)
    response(tmp_path)
    change = AuditEntry.objects.filter(action="billing_setup_put").order_by("pk").last()
    assert change is not None
    assert change.detail["after"]["tax_id"] == "91310000MA1K00000X"
    team = AuditEntry.objects.filter(action="team_put", subject="nlp").order_by("pk").last()
    assert team is not None
    assert (team.detail["legal_entity"], team.detail["recipient"]) == ("Example Research Ltd", "Li Lei, Controlling")
    with pytest.raises(SetUpFileError, match=r"billing.*tax_id.*at most 64 characters"):
        response(tmp_path, tax_id="9" * 65)
    assert BillingSetup.objects.get().tax_id == "91310000MA1K00000X"
    assert Team.objects.get(code="cv").legal_entity == ""


def test_the_first_steps_ask_for_it(db: None) -> None:
    admin = signed_in(person("ada", "admin"))
    given = {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "AI-INFRA", "review": "none", **ISSUER}
    wrong = admin.post("/start/billing/", {**given, "tax_id": "9" * 65})
    assert (wrong.status_code, sorted(wrong.context["form"].errors)) == (400, ["tax_id"])
    assert admin.post("/start/billing/", given).status_code == 302
    setup = BillingSetup.objects.get()
    assert {name: getattr(setup, name) for name in ISSUER} == ISSUER


def test_a_credit_note_is_of_the_issuer_who_charged(october: Path, tmp_path: Path) -> None:
    """Since November another unit issues: it takes nothing back that was never its own, and bills anew in its own name."""
    response(october, issuer="NEWCO", legal_entity="Newco 有限公司")
    taken, billed = credit(whole(rebill_price=Decimal("9.5")))
    assert (taken.number, billed.number) == ("AI-INFRA-CN-2026-000001", "NEWCO-RB-2026-000001")
    assert document_of(taken)["issuer"] == {"name": "AI-INFRA", **ISSUER}
    assert document_of(billed)["issuer"] == {"name": "NEWCO", **ISSUER, "legal_entity": "Newco 有限公司"}

    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    assert proofs_hold("2026-10", "2026-11")
    journal_export(month="2026-11", path=tmp_path / "journal.csv", chart=Chart())
    recovered = [
        (row["company_code"], row["cost_center"], row["debit"], row["credit"])
        for row in csv_rows((tmp_path / "journal.csv").read_bytes())
        if row["account"] == "internal AI compute recovered"
    ]
    assert recovered == [("AI-INFRA", "AI-INFRA", "209.62", ""), ("NEWCO", "NEWCO", "", "199.14")]
    focus_export(month="2026-11", directory=tmp_path)
    rows = pq.read_table(tmp_path / "focus-cost-and-usage-2026-11.parquet").to_pylist()
    assert {(row["InvoiceIssuerName"], row["InvoiceId"]) for row in rows} == {
        ("AI-INFRA", taken.number), ("NEWCO", billed.number)
    }  # fmt: skip
