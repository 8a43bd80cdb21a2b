"""A disputed document posts as it was invoiced; what earlier releases held back is posted once, by the next journal."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from billing.corrections.disputed import aged, dispute_as_dict, disputes_of
from billing.corrections.models import Dispute, DisputeHoldback
from billing.corrections.services.corrections import correction_approve
from billing.corrections.services.disputes import Claim, dispute_open, dispute_uphold
from billing.exports.journal import Chart, batch_hash
from billing.exports.services.journal import Exported, journal_acknowledge, journal_export
from billing.invoices.issued import NotIssuedError
from billing.invoices.models import Invoice, JournalExport
from billing.invoices.selectors import state_of
from billing.tenancy.models import AuditEntry
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_tokens, person, signed_in, token_record
from tests.factories.commands import Manage
from tests.factories.corrections import NOVEMBER_OVER, bill, issue, people
from tests.factories.pages import file_rows

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FRIDAY = datetime(2026, 11, 6, 7, tzinfo=UTC)
ACCEPTED = datetime(2026, 11, 7, tzinfo=UTC)
"""Issued on Sunday 1 November: silence until the end of Friday the 6th, in Shanghai, is acceptance."""
DECEMBER = NOVEMBER_OVER + timedelta(days=1)
TEN_HOURS = {"ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}
ALL_OF_IT, REST = ["100000.00", "20000.00"], ["70000.00", "20000.00"]


@pytest.fixture(scope="module")
def number(for_all_tests: Path) -> str:
    """nlp owes 100,000.00 of GPU hours (1,000 devices for 10 h at 10.00, line 1) and 20,000.00 of tokens (2.5 x 10^9
    output tokens at 8.00 per million, line 2)."""
    people()
    apply(for_all_tests)
    person("tom", "lead", team="nlp")
    factories.ingest_allocations(allocation_record(quantity=1000, **TEN_HOURS))
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=2_500_000_000))
    bill()
    invoice = Invoice.objects.get()
    assert invoice.total == Decimal("120000.00")
    return str(invoice.number)


def opened(number: str, amount: str | None = "30000.00", positions: tuple[int, ...] = (1,)) -> Dispute:
    claim = Claim(number, positions, "sla", "node lost", "INC-9", None if amount is None else Decimal(amount))
    return dispute_open(claim=claim, actor="tom", now=FRIDAY)


def held(dispute: Dispute, **kinds: str) -> DisputeHoldback:
    """A holdback as an earlier release placed it."""
    return DisputeHoldback.objects.create(
        dispute=dispute, sequence=1, kinds=kinds, amount=sum(map(Decimal, kinds.values())), reason="too large to post",
        placed_by="sam", placed_at=FRIDAY,
    )  # fmt: skip


def handed_over(directory: Path, number: str, month: str = "2026-10") -> Exported:
    """A journal as an earlier release handed it over, without the held part, and the ledger acknowledged."""
    exported = journal_export(month=month, path=directory / "old.csv", chart=Chart())
    assert posted(exported) == {f"GL-{number}": REST}
    JournalExport.objects.create(
        period=Invoice.objects.get(number=number).period, batch_hash=batch_hash(exported.journals), journals=1,
        debit=exported.debit, documents=[], in_part=[number], exported_at=FRIDAY, exported_by="sam",
    )  # fmt: skip
    journal_acknowledge(
        month=month, batch=batch_hash(exported.journals), reference="SAP-1", actor="sam", now=FRIDAY
    )
    return exported


def export(
    directory: Path, month: str = "2026-10", *, now: datetime = FRIDAY, accepted_at: datetime | None = None
) -> Exported:
    return journal_export(
        month=month, path=directory / "journal.csv", chart=Chart(), exported_by="sam", now=now, accepted_at=accepted_at
    )


def posted(exported: Exported) -> dict[str, list[str]]:
    """Debits by journal."""
    return {
        journal.journal_id: [format(entry.debit, "f") for entry in journal.entries if entry.debit is not None]
        for journal in exported.journals
    }


def billed_november() -> str:
    """November of nlp: one device for ten hours at 10.00, 100.00; the number of its invoice."""
    ended = "2026-11-10T10:00:00Z"
    factories.ingest_allocations(
        allocation_record(7, quantity=1, started_at="2026-11-10T00:00:00Z", ended_at=ended, observed_until=ended)
    )
    bill("2026-11", NOVEMBER_OVER)
    return str(Invoice.objects.get(period__month="2026-11").number)


def test_a_disputed_document_is_posted_as_it_was_invoiced_and_settled(number: str, tmp_path: Path) -> None:
    opened(number, None)
    exported = export(tmp_path)
    assert posted(exported) == {f"GL-{number}": ALL_OF_IT}
    batch = batch_hash(exported.journals)
    assert JournalExport.objects.get().documents == [number]
    journal_acknowledge(month="2026-10", batch=batch, reference="SAP-1", actor="sam", now=FRIDAY)
    assert Invoice.objects.get().events.filter(kind="settled").exists()
    assert state_of(Invoice.objects.get()) == "disputed"


def test_what_is_upheld_is_taken_back_by_a_credit_note_and_nothing_else(number: str, tmp_path: Path) -> None:
    """-100,000.00 of the credit note, in the journal of November."""
    upheld = dispute_uphold(dispute_id=opened(number, None).pk, actor="sam", now=FRIDAY, text="the node was down")
    assert upheld.correction is not None
    correction_approve(correction_id=upheld.correction.pk, actor="fin", now=FRIDAY)
    (note,) = issue(upheld.correction, "head")
    assert note.total == Decimal("-100000.00")
    assert posted(export(tmp_path))[f"GL-{number}"] == ALL_OF_IT


def test_a_disputed_document_is_posted_once_its_five_business_days_are_over(number: str, tmp_path: Path) -> None:
    opened(number)
    with pytest.raises(NotIssuedError, match="no document of 2026-10 is accepted yet"):
        export(tmp_path, accepted_at=FRIDAY)
    assert posted(export(tmp_path, accepted_at=ACCEPTED)) == {f"GL-{number}": ALL_OF_IT}


def test_what_was_held_is_posted_once_by_the_next_journal_whichever_month_it_is_of(number: str, tmp_path: Path) -> None:
    dispute = opened(number)
    hold = held(dispute, gpu="30000.00")
    before = handed_over(tmp_path, number)
    november = billed_november()
    next_one = export(tmp_path, "2026-11", now=DECEMBER)
    assert posted(next_one) == {f"GL-{november}": ["100.00"], f"GL-{number}-H1": ["30000.00"]}
    last = file_rows(tmp_path / "journal.csv")[-1]
    assert (last["posting_date"], last["period"], last["invoice_number"]) == ("2026-11-30", "2026-11", number)
    assert last["text"] == f"{number} nlp 2026-10: GPU hours, dispute {dispute.pk}"
    hold.refresh_from_db()
    assert (hold.posted_with and hold.posted_with.month, hold.posted_at) == ("2026-11", DECEMBER)
    again = export(tmp_path, "2026-11", now=DECEMBER)
    assert batch_hash(again.journals) == batch_hash(next_one.journals)
    october = export(tmp_path, now=DECEMBER)
    assert (posted(october), october.posted_otherwise) == ({f"GL-{number}": REST}, [])
    assert batch_hash(october.journals) == batch_hash(before.journals)


def test_the_journal_of_its_own_month_posts_it_where_that_is_the_next(number: str, tmp_path: Path) -> None:
    held(opened(number), gpu="30000.00")
    handed_over(tmp_path, number)
    exported = export(tmp_path, now=DECEMBER)
    assert posted(exported) == {f"GL-{number}": REST, f"GL-{number}-H1": ["30000.00"]}
    assert (exported.debit, exported.posted_otherwise) == (Decimal("120000.00"), [])
    billed_november()
    assert f"GL-{number}-H1" not in posted(export(tmp_path, "2026-11", now=DECEMBER))


@pytest.mark.parametrize(
    ("exported_days", "ended_days", "month"),
    [
        ([], None, "2026-10"),  # no journal has had the document: both parts go together
        ([0], None, None),  # handed over without it
        ([0], 1, None),  # let go after the only journal
        ([0, 2], 1, "2026-10"),  # posted by the second journal
    ],
)
def test_an_upgrade_finds_out_what_journals_have_posted(
    number: str, exported_days: list[int], ended_days: int | None, month: str | None
) -> None:
    hold = held(opened(number), gpu="30000.00")
    if ended_days is not None:
        end = {"ended_at": FRIDAY + timedelta(days=ended_days), "ended_by": "sam", "ended_reason": "decided"}
        DisputeHoldback.objects.update(**end)
    period = Invoice.objects.get().period
    for days in exported_days:
        JournalExport.objects.create(
            period=period, batch_hash=f"{days}", journals=1, debit=1, in_part=[number], exported_by="sam",
            exported_at=FRIDAY + timedelta(days=days),
        )  # fmt: skip
    import_module("billing.corrections.migrations.0002_holdbacks_post_once").assign_posted(apps, None)
    hold.refresh_from_db()
    assert (hold.posted_with and hold.posted_with.month) == month


def test_the_database_keeps_what_was_held(number: str) -> None:
    held(opened(number), gpu="30000.00")
    for statement in (
        "UPDATE corrections_disputeholdback SET amount = 1", "DELETE FROM corrections_disputeholdback",
        "UPDATE corrections_disputeholdback SET kinds = '{}'",
    ):  # fmt: skip
        refused = pytest.raises(DatabaseError, match="is placed once, ended once and posted once")
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_undecided_disputes_are_shown_by_age(number: str) -> None:
    opened(number)
    opened(number, "500.00", (2,))
    for days, numbers in [(3, [2, 0, 0]), (14, [0, 2, 0]), (30, [0, 0, 2])]:
        found = aged(list(disputes_of()), FRIDAY + timedelta(days=days))
        assert [item.number for item in found] == numbers, days
        assert sum(item.disputed for item in found) == Decimal("30500.00")


def test_pages_say_what_is_disputed_and_offer_no_hold(number: str) -> None:
    dispute = opened(number)
    opened(number, "500.00", (2,))
    page = signed_in("sam").get(f"/disputes/{dispute.pk}/").content.decode()
    assert "ledger" not in page
    assert signed_in("sam").post(f"/disputes/{dispute.pk}/hold/", {"text": "x"}).status_code == 404
    invoice = signed_in("tom").get(f"/invoices/{dispute.invoice_id}/").content.decode()
    assert ("30,500.00" in invoice, "posted as invoiced; credited if it is upheld" in invoice) == (True, True)
    statement = signed_in("tom").get("/teams/nlp/?month=2026-10").content.decode()
    assert "<dt>Disputed</dt><dd>30,500.00</dd>" in statement
    listed = signed_in("sam").get("/disputes/").content.decode()
    assert ("Undecided, by age" in listed, "ledger" in listed) == (True, False)
    ages = signed_in("sam").get("/disputes/?table=ages&as=csv").content.decode().splitlines()
    assert [line.split(",")[2:] for line in ages if ",2," in line] == [["2", "CNY", "30500.00"]]


def test_a_part_of_before_stays_readable(number: str) -> None:
    dispute = opened(number)
    held(dispute, gpu="30000.00")
    page = signed_in("tom").get(f"/disputes/{dispute.pk}/").content.decode()
    assert ("too large to post" in page, "the next journal posts it" in page) == (True, True)
    shown: Any = dispute_as_dict(disputes_of().get(pk=dispute.pk), FRIDAY)["held"]
    assert (shown["amount"], shown["placed_by"], shown["posted_with"]) == ("30000.00", "sam", None)


def test_limits_of_holdbacks_in_a_set_up_file_are_taken_with_a_warning(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"dispute_hold_share": "0.05", "dispute_hold_amount": "10000.00"}
    applied = apply(tmp_path, billing={**SET_UP["billing"], **limits})
    assert (applied.changes, applied.warnings) == ([], [
        f"billing.{name} is not used: disputes hold nothing off the ledger; remove it" for name in limits
    ])  # fmt: skip
    done = Manage(capsys)("apply", tmp_path / "set-up.yaml")
    assert (done.status, done.err.count("warning: billing.dispute_hold_")) == (0, 2)
    assert not AuditEntry.objects.filter(action="billing_setup_put", detail__after__has_key="dispute_hold_share").exists()
