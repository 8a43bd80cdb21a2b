"""From draft to settled: what each state allows, drafts voided and rebuilt, shadows that nobody owes."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from billing.approvals.limits import AuthorityError
from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.closing.services.showback import ModeError, billing_mode_put
from billing.corrections.services.settlement import document_settle
from billing.invoices.documents import PdfRenderer, render_csv, render_xlsx
from billing.invoices.issued import NotIssuedError, issued_documents
from billing.invoices.models import BillingPeriod, DocumentEvent, Invoice
from billing.invoices.selectors import document_of, state_of
from billing.invoices.services.invoices import (
    ApprovalError,
    invoice_rebuild,
    invoice_void,
    invoices_approve,
    invoices_issue,
)
from billing.tenancy.models import AuditEntry, Membership
from tests.factories import SET_UP, allocation_record, apply, approves, ingest_allocations, money, operates, signed_in
from tests.factories.commands import Done, Manage
from tests.factories.corrections import FIRST, IN_NOVEMBER, OCTOBER_OVER, bill, credit, part, people, proofs_hold
from tests.factories.pages import file_rows

pytestmark = pytest.mark.django_db
FOUR_EYES = {**SET_UP["billing"], "review": "four-eyes"}


def hold(number: int, gpus: int, day: str = "2026-10-10", **changed: Any) -> dict[str, Any]:
    """`gpus` for one hour: ten times as many yuan."""
    return allocation_record(
        number, quantity=gpus, started_at=f"{day}T00:00:00Z", ended_at=f"{day}T01:00:00Z", observed_until=None, **changed
    )


@pytest.fixture
def drafted(tmp_path: Path) -> Path:
    people()
    apply(tmp_path, billing=FOUR_EYES)
    ingest_allocations(hold(1, 10), hold(2, 3, namespace="cv"))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    return tmp_path


def states() -> dict[str, str]:
    return {invoice.team.code: state_of(invoice) for invoice in Invoice.objects.order_by("id")}


def test_a_note_is_settled_like_an_invoice(drafted: Path) -> None:
    invoices_approve(month="2026-10", actor="fin")
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    (note,) = credit(part("1.00"), by="lea")
    document_settle(number=str(note.number), reference="FI-9", actor="sam", now=IN_NOVEMBER)
    assert state_of(note) == "settled"
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE invoices_documentevent SET reference = 'x'")
    assert DocumentEvent.objects.get().reference == "FI-9"


def test_a_draft_that_was_made_since_the_approver_looked_is_not_approved_with_the_others(drafted: Path) -> None:
    approver = signed_in("fin")
    page = approver.get("/close/?month=2026-10").content.decode()
    (seen,) = re.findall(r'name="seen" value="(\d+)"', page)
    invoice_void(month="2026-10", team="nlp", reason="wrong cost centre", actor="sam")
    apply(drafted, billing=FOUR_EYES, teams=[{**SET_UP["teams"][0], "cost_center": "CC-999"}, SET_UP["teams"][1]])
    rebuilt = invoice_rebuild(month="2026-10", team="nlp", actor="sam")
    refused = approver.post("/close/2026-10/approve/", {"seen": seen})
    assert (refused.status_code, set(states().values())) == (409, {"draft"})
    assert "drafts were made since you looked" in refused.content.decode()
    assert f'name="seen" value="{rebuilt.pk}"' in refused.content.decode(), "the page that refuses shows the new one"
    assert approver.post("/close/2026-10/approve/", {"seen": str(rebuilt.pk)}).status_code == 302
    assert states() == {"cv": "approved", "nlp": "approved"}


def test_nobody_approves_a_draft_that_they_made_again(drafted: Path) -> None:
    Membership.objects.create(user=User.objects.get(username="sam"), role="approver")
    invoice_void(month="2026-10", team="nlp", reason="wrong cost centre", actor="sam")
    invoice_rebuild(month="2026-10", team="nlp", actor="sam")
    with pytest.raises(ApprovalError, match="sam made a draft of 2026-10 again: somebody else must approve"):
        invoices_approve(month="2026-10", actor="sam")
    assert set(states().values()) == {"draft"}
    assert [one.team.code for one in invoices_approve(month="2026-10", actor="sam", team="cv")] == ["cv"]
    assert [one.team.code for one in invoices_approve(month="2026-10", actor="fin")] == ["nlp"]


def test_void_is_before_issue_only_and_a_void_draft_is_built_again(drafted: Path) -> None:
    invoices_approve(month="2026-10", actor="fin")
    invoice_void(month="2026-10", team="nlp", reason="wrong cost centre", actor="sam")
    assert states() == {"cv": "approved", "nlp": "void"}
    assert invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER) == 1
    with pytest.raises(NotIssuedError, match="was voided: build it again"):
        issued_documents("2026-10")
    period = BillingPeriod.objects.get()
    checks = {check.name: check.ok for check in build_report(period, now=OCTOBER_OVER).checks}
    assert not checks["sum of invoices = sum of charges"]
    teams = [{**SET_UP["teams"][0], "cost_center": "CC-999"}, SET_UP["teams"][1]]
    apply(drafted, billing=FOUR_EYES, teams=teams)
    rebuilt = invoice_rebuild(month="2026-10", team="nlp", actor="sam")
    assert (rebuilt.status, rebuilt.total, rebuilt.draft["recipient"]["cost_center"]) == ("draft", money("100"), "CC-999")
    invoices_approve(month="2026-10", actor="fin")
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert proofs_hold("2026-10")
    assert [document.number[-6:] for document in issued_documents("2026-10")[1]] == ["000001", "000002"]
    with pytest.raises(ApprovalError, match="never voided"):
        invoice_void(month="2026-10", team="cv", reason="x", actor="sam")
    with pytest.raises(ApprovalError, match="nothing to build again"):
        invoice_rebuild(month="2026-10", team="cv", actor="sam")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE invoices_invoice SET status = 'draft' WHERE status = 'void'")
    reported = AuditEntry.objects.filter(action__in=["invoice_void", "invoice_rebuild"]).values_list("subject", flat=True)
    assert list(reported) == ["2026-10 nlp", "2026-10 nlp"]


# Shadows


def shadow(team: str = "nlp", month: str = "2026-10", mode: str = "shadow") -> None:
    billing_mode_put(team=team, from_month=month, mode=mode, reason="first quarter", actor="fin", now=OCTOBER_OVER)


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    """nlp is only shown what it would owe until December; cv is charged."""
    people()
    apply(tmp_path)
    shadow()
    shadow(month="2026-12", mode="chargeback")
    ingest_allocations(hold(1, 10), hold(2, 3, namespace="cv"))
    bill()
    return tmp_path


def test_a_shadow_has_no_number_and_is_in_no_journal_and_no_export(shadowed: Path) -> None:
    mine = Invoice.objects.get(team__code="nlp")
    assert (mine.shadow, mine.status, mine.number, mine.total) == (True, "preview", None, money("100.00"))
    assert Invoice.objects.get(team__code="cv").number == FIRST
    call_command("invoice_issue", "2026-10")  # nothing waits for approval
    call_command("export_journal", "2026-10", "--out", str(shadowed / "j.csv"))
    assert {row["invoice_number"] for row in file_rows(shadowed / "j.csv")} == {FIRST}
    call_command("export_focus", "2026-10", "--out", str(shadowed))
    assert proofs_hold("2026-10")
    assert all(check.ok for check in build_report(BillingPeriod.objects.get(), now=OCTOBER_OVER).checks)
    assert invoices_approve(month="2026-10", actor="fin") == []
    assert invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER) == 0
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE invoices_invoice SET status = 'approved' WHERE shadow")


def test_a_shadow_is_marked_in_every_format(shadowed: Path) -> None:
    mine = Invoice.objects.get(team__code="nlp")
    document = document_of(mine)
    assert document["shadow"] is True
    assert "shadow" not in document_of(Invoice.objects.get(team__code="cv"))
    facts: Any = {"sha256": None, "issued_at": None, "status": mine.status}
    assert b"preview" in render_csv(document, **facts)
    assert render_xlsx(document, **facts).startswith(b"PK")
    assert PdfRenderer().render(document, **facts) != PdfRenderer().render({**document, "shadow": False}, **facts)


def test_the_mode_of_a_closed_month_never_changes(shadowed: Path) -> None:
    with pytest.raises(ModeError, match="period 2026-10 is closed"):
        shadow("cv")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM invoices_billingmode WHERE from_month = '2026-10'")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "free"}, "mode 'free'"),
        ({"reason": " "}, "needs a reason"),
        ({"from_month": "2026-13"}, "from_month '2026-13'"),
        ({"team": "zz"}, "team 'zz'"),
    ],
)
def test_a_switch_that_cannot_be_made_is_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    people()
    apply(tmp_path)
    facts = {"team": "nlp", "from_month": "2026-10", "mode": "shadow", "reason": "r", "actor": "fin", "now": OCTOBER_OVER}
    with pytest.raises(ModeError, match=said):
        billing_mode_put(**{**facts, **changed})
    with pytest.raises(AuthorityError, match="sam may not switch"):
        billing_mode_put(**{**facts, "actor": "sam"})


def test_the_command_moves_invoices_through_their_states(
    drafted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> Done:
        return Manage(capsys)("invoice", *arguments)

    operates(monkeypatch, "lin", "finance")
    assert run("preview", "2026-10").out.splitlines() == ["shown to cv: 30.00 CNY", "shown to nlp: 100.00 CNY"]
    with pytest.raises(SystemExit, match="3"):
        call_command("invoice_issue", "2026-10")
    assert "2 drafts wait for approval" in capsys.readouterr().err
    assert run("void", "2026-10", "--team", "cv", "--reason", "r").out.splitlines() == ["void: 30.00 CNY of cv"]
    assert run("rebuild", "2026-10", "--team", "cv").out.splitlines() == ["built again: 30.00 CNY of cv"]
    mode = ("mode", "cv", "shadow", "--reason", "r", "--by", "fin", "--from")
    assert run(*mode, "2026-11").out == "cv: shadow from 2026-11\n"
    assert run(*mode, "2026-10").status == 2
    assert run("settle", FIRST, "--reference", "FI-1", "--by", "sam").status == 2
    call_command("invoice_approve", "2026-10", "--by", approves(monkeypatch, "fin", "approver"))
    call_command("invoice_issue", "2026-10")
    assert run("settle", FIRST, "--reference", "FI-1", "--by", "sam").out.splitlines() == [f"{FIRST}: settled"]
    reported = json.loads(Manage(capsys)("invoice_issue", "2026-10", "--json").out)["invoices"]
    assert [(row["number"], row["status"], Decimal(row["total"])) for row in reported] == [
        (FIRST, "settled", Decimal(30)), ("AI-INFRA-2026-000002", "issued", Decimal(100)),
    ]  # fmt: skip
