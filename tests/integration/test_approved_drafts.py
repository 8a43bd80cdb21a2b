"""A draft is issued as it was approved: the database keeps it, and what was changed past the database is named."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from billing.closing.services.closing import period_close
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import ApprovalError, invoice_rebuild, invoice_void, invoices_approve, invoices_issue
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person
from tests.factories.closing import sql
from tests.factories.commands import Manage
from tests.factories.months import OCTOBER_OVER
from tests.stored_rows import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
TEN_HOURS = {"quantity": 1, "ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}
FORGED = """INSERT INTO invoices_invoiceline (invoice_id, position, correction, kind, cluster, namespace, consumer,
        accelerator, sku, token_class, charge_period, unit, price_version, policy, reason, quantity, unit_price, amount)
    SELECT invoice_id, 2, correction, kind, cluster, 'forged', consumer, accelerator, sku, token_class, charge_period,
        unit, price_version, policy, reason, quantity, unit_price, 10000.00 FROM invoices_invoiceline"""


@pytest.fixture(autouse=True, scope="module")
def house(for_all_tests: Path) -> None:
    """nlp held one GPU for ten hours at 10.0000 in October: 100.00, closed by lin and approved by ada."""
    apply(for_all_tests, billing={**SET_UP["billing"], "review": "four-eyes"})
    ingest_allocations(allocation_record(1, **TEN_HOURS))
    for name, role in (("lin", "finance"), ("ada", "approver")):
        person(name, role)
    period_close(month="2026-10", actor="lin", now=OCTOBER_OVER)
    invoices_approve(month="2026-10", actor="ada")


def issue() -> int:
    return invoices_issue(month="2026-10", actor="lin", now=OCTOBER_OVER)


def test_what_was_approved_is_issued_and_the_log_says_what_it_was() -> None:
    (entry,) = AuditEntry.objects.filter(action="invoice_approve")
    assert (entry.actor, entry.subject, entry.detail["total"], len(entry.detail["sha256"])) == (
        "ada", "2026-10 nlp", "100.00", 64,
    )  # fmt: skip
    assert issue() == 1
    assert Invoice.objects.get().total == Decimal("100.00")


@pytest.mark.parametrize("statement", [
    "UPDATE invoices_invoice SET total = total + 10000",
    "UPDATE invoices_invoice SET draft = replace(draft, '100.00', '10100.00')",
    "UPDATE invoices_invoice SET team_id = (SELECT id FROM tenancy_team WHERE code = 'cv')",
    "UPDATE invoices_invoice SET currency = 'USD'",
    "UPDATE invoices_invoiceline SET amount = 10100.00",
    "UPDATE invoices_invoicesums SET gpu = 10100.00",
    "DELETE FROM invoices_invoiceline",
    "DELETE FROM invoices_invoicesums",
    "DELETE FROM invoices_invoice",
    FORGED,
])  # fmt: skip
def test_the_database_keeps_a_draft_as_it_was_written(statement: str) -> None:
    with pytest.raises(DatabaseError, match=r"written once|never change|stays: void it"):
        sql(statement)
    assert issue() == 1


def test_the_sums_of_a_draft_are_those_of_its_lines() -> None:
    rewrite("DELETE FROM invoices_invoicesums")
    with pytest.raises(DatabaseError, match="the sums of an invoice are those of its lines"):
        sql("""INSERT INTO invoices_invoicesums (invoice_id, gpu, tokens, other, facets)
               SELECT id, 1, 0, 0, '' FROM invoices_invoice""")


TAMPERS = {
    "UPDATE invoices_invoice SET total = total + 10000": "its total is 10100.00, its charges come to 100.00",
    "UPDATE invoices_invoice SET draft = replace(draft, '\"total\":\"100.00\"', '\"total\":\"10100.00\"')": (
        "its text is not the one that ada approved, with a total of 100.00"
    ),
    "UPDATE invoices_invoice SET draft = replace(draft, 'NLP', 'CV')": (
        "its text is not the one that ada approved, with a total of 100.00"
    ),
    "UPDATE invoices_invoice SET approved_by = 'eve'": "the audit log has no approval by eve",
    "UPDATE invoices_invoiceline SET amount = 10100.00": "its line 1 of NVIDIA-H800 is not the one of its charge, 100.00",
    "UPDATE invoices_invoiceline SET namespace = 'x'": "its line 1 of NVIDIA-H800 is not the one of its charge, 100.00",
    "UPDATE rating_charge SET usage_quantity = usage_quantity * 2": "its total is 100.00, its charges come to 200.00",
    FORGED: "it has 2 lines and its text 1, its charges give 1",
}


@pytest.mark.parametrize("tamper", TAMPERS)
def test_a_draft_that_was_changed_past_the_database_is_not_issued(tamper: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rewrite(tamper) == 1
    with pytest.raises(ApprovalError) as refused:
        issue()
    assert str(refused.value) == (
        f"the draft of nlp for 2026-10 is not what was approved: {TAMPERS[tamper]}; void it and build it again"
    )
    assert "is not what was approved" in Manage(capsys)("invoice_issue", "2026-10", "--by", "lin").error
    assert Invoice.objects.get().number is None


def test_a_draft_that_nobody_reviewed_is_compared_with_its_charges() -> None:
    rewrite("""UPDATE invoices_invoice SET approved_by = 'review: none', draft = replace(draft, '100.00', '900.00'),
               total = 900""")
    with pytest.raises(ApprovalError, match=r"its total is 900\.00, its charges come to 100\.00"):
        issue()


def test_a_draft_that_was_built_again_and_approved_is_issued() -> None:
    invoice_void(month="2026-10", team="nlp", reason="another name", actor="lin")
    again: Any = invoice_rebuild(month="2026-10", team="nlp", actor="lin")
    assert again.total == Decimal("100.00")
    invoices_approve(month="2026-10", actor="ada")
    assert issue() == 1


def test_an_approval_of_before_the_log_kept_the_text_is_compared_with_the_charges() -> None:
    rewrite("UPDATE tenancy_auditentry SET detail = '{}' WHERE action = 'invoice_approve'")
    assert issue() == 1
