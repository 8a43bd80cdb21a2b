"""The report of an issued month: one sum in lines, documents, journal and FOCUS; and what upheld disputes leave behind."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import connection

from billing.closing.report import Check, Report, build_report
from billing.corrections.models import Dispute
from billing.corrections.services.disputes import Claim, dispute_open, dispute_uphold
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.corrections import bill, issue, people
from tests.stored_rows import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FRIDAY = datetime(2026, 11, 6, 9, tzinfo=UTC)
NAME = "lines = documents = ledger journal = FOCUS"
TEN_HOURS = {"ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """nlp owes 1,000.00 of GPU hours and 8.00 of tokens, cv 100.00; both are issued."""
    people()
    apply(for_all_tests)
    person("tom", "lead", team="nlp")
    ingest_allocations(
        allocation_record(1, quantity=10, **TEN_HOURS), allocation_record(2, quantity=1, namespace="cv", **TEN_HOURS)
    )
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    bill()


def report(month: str = "2026-10") -> Report:
    return build_report(period_of(month), now=FRIDAY)


def agreed() -> Check:
    return next(check for check in report().checks if check.name == NAME)


def uphold(amount: str, code: str = "sla") -> Dispute:
    number = str(Invoice.objects.get(team__code="nlp").number)
    claim = Claim(number, [1], code, "node lost", "", Decimal(amount))
    opened = dispute_open(claim=claim, actor="tom", now=FRIDAY)
    return dispute_uphold(dispute_id=opened.pk, actor="sam", now=FRIDAY, text="indeed")


def test_a_price_that_somebody_changed_in_the_database_is_another_charge(october: None) -> None:
    """Three charges, of which the two of GPU hours would be at another price; the stored ones are as they were issued."""
    assert rewrite("UPDATE rates_gpuprice SET price = 10.0001 WHERE accelerator = 'NVIDIA-H800'") == 1
    (check,) = [one for one in report().checks if one.name == "rating the stored usage again gives the same charges"]
    assert (check.ok, str(check.detail)) == (False, "3 charges, 2 differ")


def test_what_was_issued_is_one_sum(october: None) -> None:
    assert (agreed().ok, agreed().detail) == (True, "2 documents, 1,108.00")


@pytest.mark.parametrize(
    ("field", "reported"),
    [
        ("total", "but journal 1,009.00, document 1,009.00"),
        ("lines", "but lines 1,009.00, FOCUS 1,009.00"),
        ("subtotals", "its sub-totals are not its total"),
    ],
)
def test_a_document_whose_sums_differ_is_named(october: None, field: str, reported: str) -> None:
    """One cent or yuan is enough; the trigger that keeps issued rows is lifted to try it."""
    invoice = Invoice.objects.get(team__code="nlp")
    document = json.loads(invoice.document)
    if field == "total":
        document["total"] = "1009.00"
        document["subtotals"][0]["amount"] = "1001.00"
    else:
        document[field][0]["amount"] = "1001.00"
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE invoices_invoice DISABLE TRIGGER USER")
        cursor.execute("UPDATE invoices_invoice SET document = %s WHERE id = %s", [json.dumps(document), invoice.pk])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE invoices_invoice ENABLE TRIGGER USER")
    assert not agreed().ok
    assert reported in agreed().detail


def test_sums_that_pages_show_are_compared_too(october: None) -> None:
    """With the guard of issued rows lifted: sums that are wrong, and sums that are gone, are both found."""
    invoice = Invoice.objects.get(team__code="nlp")
    for change in ("UPDATE invoices_invoicesums SET tokens = 8.01", "DELETE FROM invoices_invoicesums"):
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("ALTER TABLE invoices_invoicesums DISABLE TRIGGER USER")
            cursor.execute(f"{change} WHERE invoice_id = %s", [invoice.pk])
        assert (agreed().ok, agreed().detail) == (
            False, f"{invoice.number} is 1,008.00, but pages {'1,008.01' if 'UPDATE' in change else '0.00'}"
        )  # fmt: skip


def test_a_month_of_which_nothing_is_issued_has_no_such_sum(october: None) -> None:
    assert NAME not in [check.name for check in report("2026-11").checks]


def test_an_upheld_dispute_stands_in_the_report_until_its_credit_is_issued(october: None) -> None:
    def left() -> list[tuple[str, str, Decimal | None, bool]]:
        found = report("2026-11").exceptions
        return [(x.kind, x.subject, x.amount, x.blocks) for x in found if x.kind.startswith("upheld")]

    assert left() == []
    dispute = uphold("100.00")
    subject = f"dispute {dispute.pk} of {dispute.document.number}"
    assert left() == [("upheld_uncredited", subject, Decimal("100.00"), False)]
    assert dispute.correction is not None
    issue(dispute.correction, "lea")
    assert left() == []


def test_a_reason_that_is_upheld_twice_within_three_months_asks_for_a_defect(october: None) -> None:
    for amount, code in (("100.00", "sla"), ("50.00", "price"), ("25.00", "sla")):
        dispute = uphold(amount, code)
        assert dispute.correction is not None
        issue(dispute.correction, "lea")
    (item,) = [x for x in report("2026-11").exceptions if x.kind == "upheld_repeatedly"]
    assert (item.subject, item.quantity, item.amount) == ("sla", Decimal(2), Decimal("125.00"))
    assert item.facts.link("2026-11") == "/disputes/"
    assert [x for x in report("2027-03").exceptions if x.kind == "upheld_repeatedly"] == []
