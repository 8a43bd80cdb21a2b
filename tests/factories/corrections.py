"""What tests of corrections share: people with levels, a billed month, notes as the tests state them."""

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command

from billing.closing.services.closing import period_close
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Correction, Invoice, Note
from billing.invoices.selectors import document_of
from billing.invoices.services.invoices import invoices_issue
from billing.tenancy.models import Membership
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.pages import file_rows

OCTOBER_OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
NOVEMBER_OVER = datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
IN_NOVEMBER = datetime(2026, 11, 12, 9, tzinfo=UTC)
FIRST = "AI-INFRA-2026-000001"


def people() -> None:
    """sam and lea are of finance, fin and head approve, viv only looks."""
    for name, role in (("sam", "finance"), ("lea", "finance"), ("fin", "approver"), ("head", "approver"),
                       ("viv", "auditor")):  # fmt: skip
        Membership.objects.create(user=User.objects.create_user(name), role=role)


def bill(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> None:
    """Close and issue a month."""
    period_close(month=month, actor="ops", now=now)
    invoices_issue(month=month, actor="ops", now=now)


def billed_october(directory: Path) -> None:
    """nlp held ten devices for ten hours at 10: 1000.00 on line 1 of FIRST."""
    people()
    apply(directory)
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=10, ended_at=end, observed_until=end))
    bill()


def wanted(code: str = "price", actor: str = "sam", now: datetime = IN_NOVEMBER) -> Wanted:
    """A reason, and who gives it."""
    return Wanted(code, "the list price was 9.5", "INC-17", actor, now)


def draft(*credits: LineCredit, number: str = FIRST, code: str = "price", actor: str = "sam") -> Correction:
    """A drafted correction."""
    return credit_note_draft(number=number, credits=credits, wanted=wanted(code, actor))


def issue(correction: Correction, by: str = "fin", now: datetime = IN_NOVEMBER) -> list[Note]:
    """Approve and issue a correction; its notes in the order of their numbers."""
    correction_approve(correction_id=correction.pk, actor=by, now=now)
    correction_issue(correction_id=correction.pk, actor=by, now=now)
    return list(correction.notes.order_by("kind", "id"))


def credit(*credits: LineCredit, by: str = "fin", **facts: Any) -> list[Note]:
    """A correction from the first word to the last number."""
    return issue(draft(*credits, **facts), by)


def shown(note: Note) -> list[tuple[Any, ...]]:
    """Style, kind, quantity, price and amount of every line."""
    note.refresh_from_db()
    return [
        (line["style"], line["kind"], line["quantity"], line["unit_price"], line["amount"])
        for line in document_of(note)["lines"]
    ]


def proofs_hold(*months: str) -> bool:
    """Whether every document of the months follows again from what it is made of."""
    proofs = [proof for month in months for proof in period_verify(month=month)]
    return bool(proofs) and all(proof.holds for proof in proofs)


def account(team: str) -> Decimal:
    """Everything that a team owes: invoices and notes."""
    invoices = Invoice.objects.filter(team__code=team, number__isnull=False)
    notes = Note.objects.filter(team__code=team, number__isnull=False)
    return sum((document.total for document in (*invoices, *notes)), Decimal("0.00"))


def net_by_cost_centre(directory: Path, month: str) -> dict[str, Decimal]:
    """Debits less credits of the journal of a month."""
    call_command("export_journal", month, "--out", str(directory / "journal.csv"), "--provider-cost-center", "CC-900")
    net: dict[str, Decimal] = defaultdict(Decimal)
    for row in file_rows(directory / "journal.csv"):
        net[row["cost_center"]] += Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
    return dict(net)


def whole(position: int = 1, **changed: Any) -> LineCredit:
    """A whole line."""
    return LineCredit(position, **changed)


def part(amount: str, position: int = 1, **changed: Any) -> LineCredit:
    """An amount of a line."""
    return LineCredit(position, amount=Decimal(amount), **changed)
