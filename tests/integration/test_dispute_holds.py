"""A large disputed amount is kept off the ledger until it is decided; the undisputed part is posted as ever."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.approvals.limits import AuthorityError
from billing.corrections.dispute_holdback import aged
from billing.corrections.disputed import dispute_as_dict, disputes_of
from billing.corrections.models import Dispute, DisputeHoldback
from billing.corrections.services.corrections import correction_approve
from billing.corrections.services.dispute_holdback import HoldError, dispute_hold, dispute_let_go
from billing.corrections.services.disputes import Claim, dispute_open, dispute_reject, dispute_uphold, dispute_withdraw
from billing.exports.journal import Chart, batch_hash
from billing.exports.services.journal import Exported, journal_acknowledge, journal_export
from billing.invoices.issued import NotIssuedError
from billing.invoices.models import Invoice, JournalExport, Note
from billing.invoices.selectors import state_of
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, BillingSetup
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_tokens, person, signed_in, token_record
from tests.factories.corrections import bill, issue, people
from tests.factories.pages import file_rows

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FRIDAY = datetime(2026, 11, 6, 7, tzinfo=UTC)
ACCEPTED = datetime(2026, 11, 7, tzinfo=UTC)
"""Issued on Sunday 1 November: silence until the end of Friday the 6th, in Shanghai, is acceptance."""
TEN_HOURS = {"ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}


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


def opened(number: str, amount: str | None = "30000.00", positions: tuple[int, ...] = (1,), code: str = "sla") -> Dispute:
    claim = Claim(number, positions, code, "node lost", "INC-9", None if amount is None else Decimal(amount))
    return dispute_open(claim=claim, actor="tom", now=FRIDAY)


def hold(dispute: Dispute, actor: str = "sam") -> DisputeHoldback:
    return dispute_hold(dispute_id=dispute.pk, actor=actor, now=FRIDAY, text="too large to post")


def export(directory: Path, accepted_at: datetime | None = None) -> Exported:
    return journal_export(
        month="2026-10", path=directory / "journal.csv", chart=Chart(), exported_by="sam", now=FRIDAY,
        accepted_at=accepted_at,
    )  # fmt: skip


def posted(exported: Exported) -> dict[str, list[str]]:
    """Debits by journal."""
    return {
        journal.journal_id: [format(entry.debit, "f") for entry in journal.entries if entry.debit is not None]
        for journal in exported.journals
    }


def test_the_undisputed_part_is_posted_and_the_rest_once_it_is_rejected(number: str, tmp_path: Path) -> None:
    dispute = opened(number)
    hold(dispute)
    first = export(tmp_path)
    assert posted(first) == {f"GL-{number}": ["70000.00", "20000.00"]}
    assert (first.debit, first.credit) == (Decimal("90000.00"), Decimal("90000.00"))
    assert first.held == {number: Decimal("30000.00")}
    before = (tmp_path / "journal.csv").read_text().splitlines()
    dispute_reject(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="the node was up")
    assert DisputeHoldback.objects.get().ended_reason == "the node was up"
    second = export(tmp_path)
    assert posted(second) == {f"GL-{number}": ["70000.00", "20000.00"], f"GL-{number}-H1": ["30000.00"]}
    assert (second.debit, second.credit, second.held) == (Decimal("120000.00"), Decimal("120000.00"), {})
    rows = file_rows(tmp_path / "journal.csv")
    assert [row["line_id"] for row in rows[-2:]] == [f"GL-{number}-H1-001", f"GL-{number}-H1-002"]
    assert rows[-1]["text"] == f"{number} nlp 2026-10: GPU hours, dispute {dispute.pk}"
    again = [line.rsplit(",", 1)[0] for line in (tmp_path / "journal.csv").read_text().splitlines()]
    assert again[: len(before)] == [line.rsplit(",", 1)[0] for line in before]  # what was posted is posted the same


def test_what_is_upheld_is_posted_and_taken_back_by_its_note(number: str, tmp_path: Path) -> None:
    dispute = opened(number, None)  # all of line 1
    hold(dispute)
    assert posted(export(tmp_path)) == {f"GL-{number}": ["20000.00"]}
    upheld = dispute_uphold(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="the node was down")
    assert upheld.correction is not None
    correction_approve(correction_id=upheld.correction.pk, actor="fin", now=FRIDAY)
    issue(upheld.correction, "head")
    assert Note.objects.get().total == Decimal("-100000.00")
    assert posted(export(tmp_path)) == {f"GL-{number}": ["20000.00"], f"GL-{number}-H1": ["100000.00"]}


def test_only_what_posts_in_full_is_settled_by_the_ledgers_yes(number: str, tmp_path: Path) -> None:
    dispute = opened(number)
    hold(dispute)
    partial = batch_hash(export(tmp_path).journals)
    kept = JournalExport.objects.get()
    assert (kept.documents, kept.in_part, kept.debit) == ([], [number], Decimal("90000.00"))
    dispute_withdraw(dispute_id=dispute.pk, actor="tom", now=FRIDAY, text="we found the log")
    journal_acknowledge(month="2026-10", batch=partial, reference="SAP-1", actor="sam", now=FRIDAY)
    assert state_of(Invoice.objects.get()) == "issued"
    whole = batch_hash(export(tmp_path).journals)
    journal_acknowledge(month="2026-10", batch=whole, reference="SAP-2", actor="sam", now=FRIDAY)
    assert state_of(Invoice.objects.get()) == "settled"


def test_where_acceptance_is_asked_for_the_undisputed_part_is_posted_after_it(number: str, tmp_path: Path) -> None:
    dispute = opened(number)
    with pytest.raises(NotIssuedError, match="no document of 2026-10 is accepted yet"):
        export(tmp_path, ACCEPTED)
    hold(dispute)
    with pytest.raises(NotIssuedError, match="no document of 2026-10 is accepted yet"):
        export(tmp_path, FRIDAY)
    assert posted(export(tmp_path, ACCEPTED)) == {f"GL-{number}": ["70000.00", "20000.00"]}


@pytest.mark.parametrize(
    ("share", "amount", "disputed", "held"),
    [
        ("0.05", "10000.00", "10000.00", False),  # not above the amount
        ("0.05", "10000.00", "10000.01", True),
        ("0.25", "10000.00", "30000.00", False),  # exactly the share of 120,000.00
        ("0.25", "10000.00", "30000.01", True),
        ("0", "0", "0.01", True),
    ],
)
def test_only_what_is_above_both_limits_is_held(
    number: str, tmp_path: Path, share: str, amount: str, disputed: str, held: bool
) -> None:
    limits = {"dispute_hold_share": share, "dispute_hold_amount": amount}
    apply(tmp_path, billing={**SET_UP["billing"], **limits})
    assert not apply(tmp_path, billing={**SET_UP["billing"], **limits}).changes
    dispute = opened(number, disputed)
    if held:
        assert hold(dispute).amount == Decimal(disputed)
    else:
        with pytest.raises(HoldError, match="it posts, and is credited later"):
            hold(dispute)


def test_the_limits_are_five_per_cent_and_ten_thousand_unless_said_otherwise(number: str, tmp_path: Path) -> None:
    setup = BillingSetup.objects.get()
    assert (setup.dispute_hold_share, setup.dispute_hold_amount) == (Decimal("0.05"), Decimal("10000.00"))
    with pytest.raises(SetUpFileError, match="dispute_hold_share"):
        apply(tmp_path, billing={**SET_UP["billing"], "dispute_hold_share": "1.5"})


def test_a_hold_is_finances_has_a_reason_and_comes_once_before_the_ledger_has_it(number: str, tmp_path: Path) -> None:
    dispute = opened(number)
    for actor in ("tom", "nobody"):
        with pytest.raises(AuthorityError, match="with the right close"):
            hold(dispute, actor)
    with pytest.raises(HoldError, match="say why the disputed amount is kept off the ledger"):
        dispute_hold(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text=" ")
    with pytest.raises(HoldError, match="keeps nothing off the ledger"):
        dispute_let_go(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="x")
    hold(dispute)
    dispute_let_go(dispute_id=dispute.pk, actor="sam", now=FRIDAY, text="post it")
    with pytest.raises(HoldError, match="was kept off the ledger before: that is done once"):
        hold(dispute)
    reported = AuditEntry.objects.filter(action__in=("dispute_hold", "dispute_let_go")).order_by("id")
    kinds = {"gpu": "30000.00"}
    assert list(reported.values_list("action", "actor", "detail")) == [
        ("dispute_hold", "sam", {"text": "too large to post", "amount": "30000.00", "kinds": kinds}),
        ("dispute_let_go", "sam", {"text": "post it", "amount": "30000.00", "kinds": kinds}),
    ]
    assert posted(export(tmp_path)) == {f"GL-{number}": ["70000.00", "20000.00"], f"GL-{number}-H1": ["30000.00"]}
    second = opened(number, None, (2,), code="duplicate")
    with pytest.raises(HoldError, match="was handed to the ledger already"):
        hold(second)


def test_an_amount_over_lines_of_two_kinds_is_held_to_the_cent(number: str, tmp_path: Path) -> None:
    """25,000.00 over 100,000.00 and 20,000.00: 20,833.333... and 4,166.666..."""
    hold(opened(number, "25000.00", (1, 2)))
    assert DisputeHoldback.objects.get().kinds == {"gpu": "20833.33", "tokens": "4166.67"}
    assert posted(export(tmp_path)) == {f"GL-{number}": ["79166.67", "15833.33"]}


def test_the_database_keeps_what_was_held(number: str) -> None:
    hold(opened(number))
    for statement in (
        "UPDATE corrections_disputeholdback SET amount = 1", "DELETE FROM corrections_disputeholdback",
        "UPDATE corrections_disputeholdback SET kinds = '{}'",
    ):  # fmt: skip
        refused = pytest.raises(DatabaseError, match="is placed once and ended once")
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_disputes_are_shown_by_age_with_what_is_off_the_ledger(number: str) -> None:
    hold(opened(number))
    opened(number, "500.00", (2,))
    ages = [(3, [2, 0, 0]), (14, [0, 2, 0]), (30, [0, 0, 2])]
    for days, numbers in ages:
        found = aged(list(disputes_of()), FRIDAY + timedelta(days=days))
        assert [item.number for item in found] == numbers, days
        assert sum(item.disputed for item in found) == Decimal("30500.00")
        assert sum(item.held for item in found) == Decimal("30000.00")


def test_the_pages_offer_the_hold_and_say_what_is_off_the_ledger(number: str) -> None:
    dispute, small = opened(number), opened(number, "500.00", (2,))
    page = f"/disputes/{dispute.pk}/"
    assert "Keep off the ledger" in signed_in("sam").get(page).content.decode()
    assert "Keep off the ledger" not in signed_in("sam").get(f"/disputes/{small.pk}/").content.decode()
    assert "Keep off the ledger" not in signed_in("tom").get(page).content.decode()
    refused = signed_in("sam").post(f"/disputes/{small.pk}/hold/", {"text": "x"})
    assert (refused.status_code, "is not above 10000.00 and 5 % of" in refused.content.decode()) == (409, True)
    assert signed_in("sam").post(page + "hold/", {"text": "too large"}).status_code == 302
    reported = signed_in("tom").get(page).content.decode()
    assert ("30,000.00 CNY" in reported, "too large" in reported) == (True, True)
    assert "disputed; the rest is posted" in signed_in("tom").get(f"/invoices/{dispute.invoice_id}/").content.decode()
    assert "暂不入账" in signed_in("tom", "zh-hans").get(f"/invoices/{dispute.invoice_id}/").content.decode()
    ages = signed_in("sam").get("/disputes/?table=ages&as=csv").content.decode().splitlines()
    assert [line.split(",")[2:] for line in ages if ",2," in line] == [["2", "CNY", "30500.00", "30000.00"]]
    assert "Undecided, by age" in signed_in("sam").get("/disputes/").content.decode()
    shown: Any = dispute_as_dict(disputes_of().get(pk=dispute.pk), FRIDAY)["held"]
    assert (shown["amount"], shown["placed_by"], shown["ended_at"]) == ("30000.00", "sam", None)
    assert dispute_as_dict(disputes_of().get(pk=small.pk), FRIDAY)["held"] is None
    assert signed_in("sam").post(page + "let_go/", {"text": "agreed"}).status_code == 302
    assert "let go" in signed_in("sam").get(page).content.decode()
