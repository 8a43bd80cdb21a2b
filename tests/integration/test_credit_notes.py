"""Credit notes and rebills: numbered, immutable, approved by a second person, never more than was charged."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from billing.approvals.limits import AuthorityError
from billing.approvals.selectors import waiting
from billing.corrections.note_lines import NoteError
from billing.corrections.services.corrections import (
    Wanted,
    correction_approve,
    correction_issue,
    correction_void,
    credit_note_draft,
)
from billing.corrections.services.sla import LostWork, sla_credit_draft
from billing.invoices.models import Correction, Invoice, Note, NoteLine, NumberSeries
from billing.invoices.selectors import document_of
from billing.runtime.canonical_json import document_hash
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, apply, ingest_tokens, money, token_record
from tests.factories.corrections import (
    FIRST,
    IN_NOVEMBER,
    NOVEMBER_OVER,
    bill,
    billed_october,
    credit,
    draft,
    issue,
    net_by_cost_centre,
    part,
    people,
    wanted,
    whole,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    billed_october(for_all_tests)


def test_only_issued_documents_are_credited(tmp_path: Path) -> None:
    people()
    apply(tmp_path)
    with pytest.raises(NoteError, match="no invoice or note of that number"):
        draft(whole())


# What a note says


def test_a_credit_returns_the_cost_to_the_cost_centre_that_was_charged(tmp_path: Path) -> None:
    """1,000.00 are billed to CC-210, then nlp moves to CC-999: the credit and the corrected 950.00 are where they belong.

    A credit of that rebill is again one of CC-999. In the end both centres have paid nothing.
    """
    billed_october(tmp_path)
    apply(tmp_path, teams=[{"code": "nlp", "name": "NLP Research", "cost_center": "CC-999"}, *SET_UP["teams"][1:]])
    _, rebill = credit(whole(rebill_price=Decimal("9.5")))
    rebill.refresh_from_db()
    bill("2026-11", NOVEMBER_OVER)
    assert net_by_cost_centre(tmp_path, "2026-10") == {"CC-210": money("1000.00"), "CC-900": money("-1000.00")}
    assert net_by_cost_centre(tmp_path, "2026-11") == {
        "CC-210": money("-1000.00"), "CC-999": money("950.00"), "CC-900": money("50.00")
    }  # fmt: skip
    (again,) = credit(whole(), number=str(rebill.number))
    assert document_of(again)["recipient"]["cost_center"] == "CC-999"


def test_a_note_names_invoice_line_month_and_reason(october: None) -> None:
    note, _ = credit(whole(rebill_price=Decimal("9.5")))
    note.refresh_from_db()
    document = json.loads(note.document)
    assert document["invoice"] == {"number": FIRST, "sha256": Invoice.objects.get().sha256, "month": "2026-10"}
    assert document["period"]["month"] == "2026-11"
    line = document["lines"][0]
    assert (line["credits"], line["charge_period"], line["charge_class"]) == (
        {"document": FIRST, "position": 1}, "2026-10", "Correction",
    )  # fmt: skip
    assert document["reason"] == {"code": "price", "text": "the list price was 9.5"}
    assert note.sha256 == document_hash(note.document)


# How much


def test_the_database_itself_refuses_to_credit_too_much(october: None) -> None:
    correction = draft(part("600.00"))
    row = NoteLine.objects.get()
    more = {field.attname: getattr(row, field.attname) for field in NoteLine._meta.fields if not field.primary_key}
    with pytest.raises(DatabaseError, match="cannot be credited"), transaction.atomic():
        NoteLine.objects.create(**{**more, "position": 2, "amount": Decimal("-400.01")})
    with pytest.raises(DatabaseError, match="cannot be credited"), transaction.atomic():
        NoteLine.objects.create(**{**more, "position": 2, "amount": Decimal("600.01")})
    NoteLine.objects.create(**{**more, "position": 2, "amount": Decimal("-400.00")})
    correction_void(correction_id=correction.pk, actor="lea", reason="asked twice", now=IN_NOVEMBER)
    assert draft(whole()).amount == money("1000.00")


def test_a_line_waits_for_the_correction_that_is_not_decided(october: None) -> None:
    first = draft(part("600.00"))
    with pytest.raises(NoteError, match=f"correction {first.pk} of it is not decided"):
        draft(part("1.00"))
    correction_void(correction_id=first.pk, actor="sam", reason="mistaken", now=IN_NOVEMBER)
    assert draft(part("1000.00")).amount == money("1000.00")


@pytest.mark.parametrize(
    ("credits", "said"),
    [
        ([], "at least one line"),
        ([whole(7)], "line 7: AI-INFRA-2026-000001 charges no line"),
        ([whole(), part("1")], "name each line once"),
        ([part("0")], "not between 0.01"),
        ([part("-1")], "not between 0.01"),
        ([part("1", rebill_price=Decimal("1"))], "only a whole line is billed again"),
        ([whole(rebill_quantity=Decimal("0"))], "must be positive"),
        ([whole(rebill_price=Decimal("-1"))], "must not be negative"),
        ([whole(rebill_price=Decimal("9.00001"))], "4 decimals"),
        ([part("0.001")], "2 decimals"),
    ],
)
def test_what_cannot_be_credited_is_named(october: None, credits: list[Any], said: str) -> None:
    with pytest.raises(NoteError, match=said):
        draft(*credits)
    assert not Note.objects.exists()


def lost(position: int = 1, gpus: int = 64, number: str = FIRST) -> Any:
    work = LostWork(gpus, Decimal("3.5"), Decimal("1"))
    return sla_credit_draft(number=number, position=position, lost=work, wanted=wanted("sla"))


def test_only_lines_of_gpu_hours_lose_work(october: None, tmp_path: Path) -> None:
    with pytest.raises(NoteError, match="line 2: AI-INFRA-2026-000001 charges no line"):
        lost(2)
    with pytest.raises(NoteError, match="gpus 0, lost_hours"):
        lost(gpus=0)
    ingest_tokens(token_record(output_tokens=10_000_000, time="2026-11-15T12:00:00+08:00"))
    bill("2026-11", NOVEMBER_OVER)
    with pytest.raises(NoteError, match="charges no GPU hours"):
        lost(number="AI-INFRA-2026-000002")


@pytest.mark.parametrize("code", ["sla", "mfu", "write_off"])
def test_what_nobody_can_see_on_the_document_needs_evidence(october: None, code: str) -> None:
    with pytest.raises(NoteError, match="needs evidence"):
        credit_note_draft(
            number=FIRST, credits=[part("1.00")], wanted=Wanted(code, "it failed", " ", "sam", IN_NOVEMBER)
        )


# Who


def test_the_database_approves_no_correction_without_a_second_person(october: None) -> None:
    draft(part("10.00"), actor="lea")
    with pytest.raises(DatabaseError, match="is not approved by a second person"), connection.cursor() as cursor:
        cursor.execute("UPDATE invoices_correction SET status = 'approved', decided_by = 'fin'")


def test_a_note_that_changed_since_it_was_asked_for_is_not_approved(october: None) -> None:
    correction = draft(part("10.00"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE invoices_note SET total = total - 1")
    with pytest.raises(NoteError, match="is not what was asked for"):
        correction_approve(correction_id=correction.pk, actor="fin", now=IN_NOVEMBER)
    assert Correction.objects.get().status == "draft"


def test_a_correction_waits_for_whom_its_amount_takes_and_not_for_who_asked(october: None) -> None:
    people = {name: User.objects.get(username=name) for name in ("lea", "sam", "fin")}

    def sees() -> dict[str, bool]:
        return {name: bool(waiting(user, IN_NOVEMBER)) for name, user in people.items()}

    small = draft(part("10.00"), actor="lea")
    assert sees() == {"lea": False, "sam": True, "fin": True}
    correction_void(correction_id=small.pk, actor="lea", reason="not so", now=IN_NOVEMBER)
    assert Correction.objects.get(pk=small.pk).proposal.state == "withdrawn"
    draft(part("1.00"), code="write_off", actor="lea")
    assert sees() == {"lea": False, "sam": False, "fin": True}


# Issue


@pytest.mark.parametrize(("price", "persons"), [("9.5", ["lea"]), ("400", ["fin"]), ("501", ["fin", "head"])])
def test_what_is_billed_again_takes_as_many_as_a_credit_of_it(october: None, price: str, persons: list[str]) -> None:
    """A line of 1,000.00 is credited and billed again with 950.00, with 40,000.00 and with 50,100.00."""
    correction = draft(whole(rebill_price=money(price)))
    if "lea" not in persons:
        with pytest.raises(AuthorityError, match="the right approve"):
            correction_approve(correction_id=correction.pk, actor="lea", now=IN_NOVEMBER)
    for approver in persons:
        assert Correction.objects.get().status == "draft"
        correction_approve(correction_id=correction.pk, actor=approver, now=IN_NOVEMBER)
    assert Correction.objects.get().status == "approved"


def test_a_draft_has_no_number_and_a_second_issue_changes_nothing(october: None) -> None:
    correction = draft(whole(rebill_price=Decimal("9.5")))
    assert [note.number for note in correction.notes.all()] == [None, None]
    with pytest.raises(NoteError, match="approve it first"):
        correction_issue(correction_id=correction.pk, actor="fin", now=IN_NOVEMBER)
    assert not NumberSeries.objects.filter(kind__in=Note.Kind.values).exists()
    first = [note.document for note in issue(correction)]
    assert not correction_issue(correction_id=correction.pk, actor="fin", now=NOVEMBER_OVER)
    assert [note.document for note in correction.notes.order_by("kind", "id")] == first
    with pytest.raises(NoteError, match="only before issue"):
        correction_void(correction_id=correction.pk, actor="fin", reason="late", now=IN_NOVEMBER)


def test_notes_are_chained_in_series_of_their_own(october: None) -> None:
    for _ in range(3):
        credit(part("1.00"))
    notes = list(Note.objects.order_by("sequence"))
    assert [note.number for note in notes] == [f"AI-INFRA-CN-2026-{number:06d}" for number in (1, 2, 3)]
    assert [note.previous_sha256 for note in notes] == ["", notes[0].sha256, notes[1].sha256]
    assert json.loads(notes[1].document)["previous_sha256"] == notes[0].sha256


def test_an_issued_note_never_changes(october: None) -> None:
    credit(part("1.00"))
    for statement in (
        "UPDATE invoices_note SET total = 0",
        "UPDATE invoices_note SET number = NULL, issued_at = NULL, sha256 = '', document = ''",
        "DELETE FROM invoices_note",
        "UPDATE invoices_noteline SET amount = 0",
        "DELETE FROM invoices_noteline",
        "UPDATE invoices_correction SET status = 'void'",
        "UPDATE invoices_correction SET reason = 'x'",
        "DELETE FROM invoices_correction",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_every_step_is_in_the_audit_log(october: None) -> None:
    correction = draft(part("1.00"))
    issue(correction, "lea")
    steps = AuditEntry.objects.filter(action__in=["correction_draft", "correction_approve", "note_issue"])
    assert list(steps.order_by("id").values_list("actor", "action", "subject")) == [
        ("sam", "correction_draft", f"correction {correction.pk}"),
        ("lea", "correction_approve", f"correction {correction.pk}"),
        ("lea", "note_issue", "AI-INFRA-CN-2026-000001"),
    ]
