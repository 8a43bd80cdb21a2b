"""Silence for five business days accepts a document; every deadline knows the holidays of the installation, and all
agree."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.closing.report import build_report
from billing.corrections.services.corrections import LineCredit
from billing.corrections.services.disputes import Claim, DisputeError, dispute_open, dispute_reject
from billing.exports.journal import Chart, batch_hash
from billing.exports.services.focus import focus_export
from billing.exports.services.journal import Exported, journal_acknowledge, journal_export
from billing.invoices.acceptance import Acceptance, acceptance_counts, acceptance_of, due_of
from billing.invoices.issued import NotIssuedError
from billing.invoices.mail_text import facts_of_mail
from billing.invoices.models import Invoice, JournalExport, Note
from billing.invoices.selectors import period_of, state_of
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, BillingSetup
from billing.tenancy.selectors import company_calendar
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import FIRST, bill, credit, people
from tests.factories.pages import file_rows

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
ZONE = "Asia/Shanghai"
# issued on Sunday 1 November 2026, 08:05 in Shanghai; Wednesday the 4th is off, Saturday the 7th is worked for it
COMPANY = {**SET_UP["billing"], "holidays": ["2026-11-04", "2026-11-13"], "working_days": ["2026-11-07"]}
END = datetime(2026, 11, 7, 16, tzinfo=UTC)
"""Business days after 1 November: 2, 3, 5, 6 and Saturday 7; so the fifth ends with the 7th: 8 November, midnight."""


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> Path:
    """nlp and cv owe 1000.00 each; tom leads nlp, sam is of finance."""
    people()
    apply(for_all_tests, billing=COMPANY)
    person("tom", "lead", team="nlp")
    end = "2026-10-10T10:00:00Z"
    for number, namespace in ((1, "nlp-a"), (2, "cv")):
        ingest_allocations(
            allocation_record(number, namespace=namespace, quantity=10, ended_at=end, observed_until=end)
        )
    bill()
    return for_all_tests


def invoice(team: str) -> Invoice:
    return Invoice.objects.get(team__code=team, number__isnull=False)


def acceptance(team: str, now: datetime) -> Acceptance | None:
    return acceptance_of(invoice(team), zone=ZONE, calendar=company_calendar(), now=now)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ({"holidays": ["soon"]}, "billing.*holidays.*must be a list of days such as 2026-10-01"),
        ({"holidays": "2026-10-01"}, "must be a list of days"),
        ({"holidays": ["2026-10-01", "2026-10-01"]}, "each of them once"),
        ({"holidays": ["2026-10-10"], "working_days": ["2026-10-10"]}, "2026-10-10 is under holidays too"),
        ({"working_days": ["2026-10-12"]}, "2026-10-12 is no Saturday or Sunday"),
    ],
)
def test_a_calendar_that_nobody_understands_is_refused(tmp_path: Path, days: dict[str, Any], said: str) -> None:
    with pytest.raises(SetUpFileError, match=said):
        apply(tmp_path, **declared(**days))


def test_a_month_is_counted_with_as_many_queries_however_many_invoices_it_has(october: Path) -> None:
    """Invoices with their events, and the holidays of the installation: nothing is asked invoice by invoice."""
    with CaptureQueriesContext(connection) as queries:
        assert acceptance_counts(period_of("2026-10"), END - timedelta(days=1)) == {"waiting": 2, "held": 0, "accepted": 0}
    assert [query["sql"] for query in queries if "LIMIT 21" in query["sql"] and "invoices_invoice" in query["sql"]] == []
    assert len(queries) <= 4


def dispute(now: datetime) -> int:
    claim = Claim(str(invoice("nlp").number), [1], "sla", "node lost", "", Decimal("10.00"))
    return int(dispute_open(claim=claim, actor="tom", now=now).pk)


@pytest.mark.usefixtures("october")
def test_silence_until_the_end_of_the_fifth_business_day_accepts() -> None:
    assert acceptance("nlp", END - timedelta(seconds=1)) == Acceptance("waiting", END, None)
    assert acceptance("nlp", END) == Acceptance("accepted", END, END)
    report = build_report(period_of("2026-10"), now=END - timedelta(days=1))
    assert report.acceptance == {"waiting": 2, "held": 0, "accepted": 0}
    assert build_report(period_of("2026-10"), now=END).as_dict()["acceptance"] == {"waiting": 0, "held": 0, "accepted": 2}


@pytest.mark.usefixtures("october")
def test_a_dispute_in_time_holds_it_until_it_is_decided_and_a_later_one_does_not() -> None:
    monday, tuesday = datetime(2026, 11, 9, 2, tzinfo=UTC), datetime(2026, 11, 10, 2, tzinfo=UTC)
    claim = dispute(END - timedelta(hours=1))
    assert acceptance("nlp", monday) == Acceptance("held", END, None)
    assert build_report(period_of("2026-10"), now=monday).acceptance == {"waiting": 0, "held": 1, "accepted": 1}
    dispute_reject(dispute_id=claim, actor="sam", now=tuesday, text="the node was up")
    assert acceptance("nlp", tuesday) == Acceptance("accepted", END, tuesday)
    claim = Claim(str(invoice("nlp").number), [1], "price", "too dear", "", Decimal("10.00"))
    late = dispute_open(claim=claim, actor="tom", now=tuesday + timedelta(hours=1))
    wednesday = tuesday + timedelta(days=1)
    assert acceptance("nlp", wednesday) == Acceptance("accepted", END, tuesday)
    assert build_report(period_of("2026-10"), now=wednesday).acceptance == {"waiting": 0, "held": 0, "accepted": 2}
    dispute_reject(dispute_id=late.pk, actor="sam", now=wednesday, text="the list price is agreed")
    assert acceptance("nlp", wednesday + timedelta(days=1)) == Acceptance("accepted", END, tuesday)
    assert acceptance("cv", tuesday) == Acceptance("accepted", END, END)


@pytest.mark.usefixtures("october")
def test_a_dispute_of_another_line_that_begins_while_one_holds_the_document_holds_it_too() -> None:
    hour = timedelta(hours=1)
    for at, kind, about in ((END - hour, "disputed", 1), (END + hour, "disputed", 2), (END + 2 * hour, "decided", 1)):
        invoice("nlp").events.create(kind=kind, at=at, actor="tom", reference=f"dispute {about}")
    assert acceptance("nlp", END + 3 * hour) == Acceptance("held", END, None)
    invoice("nlp").events.create(kind="decided", at=END + 4 * hour, actor="sam", reference="dispute 2")
    assert acceptance("nlp", END + 5 * hour) == Acceptance("accepted", END, END + 4 * hour)


@pytest.mark.usefixtures("october")
def test_a_credit_note_is_accepted_at_once_and_a_draft_never() -> None:
    (note,) = credit(LineCredit(1, amount=Decimal("40.00")))
    assert note.issued_at is not None
    assert acceptance_of(note, zone=ZONE, calendar=company_calendar(), now=END) == Acceptance(
        "accepted", note.issued_at, note.issued_at
    )
    assert acceptance_of(Invoice(), zone=ZONE, calendar=company_calendar(), now=END) is None
    assert due_of(note, ZONE, company_calendar()) is None


def test_mail_page_dispute_window_and_focus_have_one_due_date(october: Path) -> None:
    # ten business days: 2, 3, 5, 6, 7, 9, 10, 11, 12 and (the 13th is off) Monday the 16th
    due = datetime(2026, 11, 16, 16, tzinfo=UTC)
    (note,) = credit(LineCredit(1, amount=Decimal("40.00")))
    assert due_of(invoice("nlp"), ZONE, company_calendar()) == due
    assert dict(facts_of_mail(invoice("nlp")))["Due"] == "2026-11-16 (Asia/Shanghai)"
    focus_export(month="2026-10", directory=october / "f")
    detail = file_rows(october / "f" / "focus-invoice-detail-2026-10.csv")
    assert {row["PaymentDueDate"] for row in detail} == {"2026-11-16T16:00:00Z"}
    with pytest.raises(DisputeError, match="could be disputed until 2026-11-17T00:00:00"):
        dispute(due)
    assert dispute(due - timedelta(seconds=1))
    for name, language, words in (("tom", "en", "Can be disputed until"), ("tom", "zh-hans", "异议截止")):
        page = signed_in(name, language).get(f"/invoices/{invoice('nlp').pk}/").content.decode()
        assert (words in page, "2026-11-16" in page, "2026-11-17" in page) == (True, True, False)
    assert Note.objects.get(pk=note.pk).number == "AI-INFRA-CN-2026-000001"


def export(directory: Path, accepted_at: datetime | None = None) -> Exported:
    return journal_export(
        month="2026-10", path=directory / "journal.csv", chart=Chart(), exported_by="sam", now=END,
        accepted_at=accepted_at,
    )  # fmt: skip


def test_only_what_is_accepted_is_posted_where_that_is_asked_for(october: Path) -> None:
    with pytest.raises(NotIssuedError, match="no document of 2026-10 is accepted yet"):
        export(october, END - timedelta(seconds=1))
    claim = dispute(END - timedelta(hours=1))
    first = export(october, END)
    assert [journal.journal_id for journal in first.journals] == sorted(
        f"GL-{invoice(team).number}" for team in ("cv", "nlp")
    )
    assert (first.debit, first.credit) == (Decimal("2000.00"), Decimal("2000.00"))
    dispute_reject(dispute_id=claim, actor="sam", now=END + timedelta(days=2), text="the node was up")
    assert batch_hash(export(october, END + timedelta(days=2)).journals) == batch_hash(first.journals)


def test_what_the_ledger_took_is_settled_and_a_disputed_document_once_that_is_decided(october: Path) -> None:
    claim = dispute(END - timedelta(hours=1))
    batch = batch_hash(export(october).journals)
    assert JournalExport.objects.get().documents == [invoice("cv").number, invoice("nlp").number]
    for _ in range(2):  # said again, nothing changes
        journal_acknowledge(month="2026-10", batch=batch, reference="SAP-1", actor="sam", now=END)
    assert (state_of(invoice("cv")), state_of(invoice("nlp"))) == ("settled", "disputed")
    dispute_reject(dispute_id=claim, actor="sam", now=END + timedelta(days=2), text="the node was up")
    assert state_of(invoice("nlp")) == "settled"
    events = invoice("cv").events.values_list("kind", "reference", "actor")
    assert list(events) == [("settled", "SAP-1", "sam")]
    assert AuditEntry.objects.get(action="journal_acknowledge").detail["settled"] == 2


def declared(**days: Any) -> dict[str, Any]:
    return {"billing": {**SET_UP["billing"], **days}}


def test_a_deadline_that_was_sent_never_moves(october: Path) -> None:
    with pytest.raises(SetUpFileError, match="2026-11-16 lies within the deadlines of issued documents"):
        apply(october, **declared(**{**COMPANY, "holidays": [*COMPANY["holidays"], "2026-11-16"]}))
    with pytest.raises(SetUpFileError, match="2026-11-04 lies within the deadlines"):
        apply(october)
    apply(october, **declared(**{**COMPANY, "holidays": [*COMPANY["holidays"], "2026-11-17"]}))
    assert BillingSetup.objects.get().holidays == [date(2026, 11, 4), date(2026, 11, 13), date(2026, 11, 17)]
    assert invoice("cv").number == FIRST
