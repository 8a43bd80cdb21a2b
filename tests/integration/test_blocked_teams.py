"""One team whose facts are broken is held; the others are billed, approved and issued, and closing again finishes it."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from billing.closing.models import BlockedTeam, PeriodReopening
from billing.closing.report import build_report
from billing.closing.services import closing
from billing.closing.services.closing import TeamsBlockedError
from billing.closing.services.reopening import ReopeningError, reopening_approve, reopening_request
from billing.corrections.services.proof import period_verify
from billing.corrections.services.retroactive import retroactive_acknowledge, retroactive_approve, retroactive_propose
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import PeriodError, period_open
from billing.portal.recovery import months_compared
from billing.rating.models import Charge
from billing.runtime.progress import no_progress
from billing.setup.apply import Applied
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, Team
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, signed_in, token_record
from tests.factories.closing import close, close_cut_off
from tests.factories.commands import Manage
from tests.stored_rows import rewrite_as_reported

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
LATER = datetime(2026, 11, 2, 0, 5, tzinfo=UTC)
DEAR = {"accelerator": "NVIDIA-DEAR", "price_per_gpu_hour": "1000000.0000"}
REOPENING = {**SET_UP["billing"], "reopening": "two-persons"}
OWNERS = SET_UP["ownership"]
PLATFORM = [{"cluster": "hq-1", "namespace": "cv", "team": "platform", "valid_from": "2026-10-01"}]


@pytest.fixture(scope="module")
def broken(for_all_tests: Path) -> None:
    """nlp: 8 devices for 9,433 s at 10.00 (209.62) and its tokens. cv: 3 devices as long (78.61), and one device for
    720 h at 1,000,000.00, of which a fault in the ledger made two thousand million: 1.44 x 10^18, more than an amount
    can hold."""
    version = SET_UP["price_versions"][0]
    apply(for_all_tests, price_versions=[{**version, "gpu": [*version["gpu"], DEAR]}])
    ingest_allocations(
        allocation_record(1),
        allocation_record(2, namespace="cv", quantity=3),
        allocation_record(
            3, namespace="cv", quantity=1, accelerator="NVIDIA-DEAR", started_at="2026-10-01T00:00:00Z",
            ended_at="2026-10-31T00:00:00Z", observed_until="2026-10-31T00:00:00Z",
        ),
    )
    ingest_tokens(token_record(1))
    _devices_are(2_000_000_000)


def repair() -> None:
    _devices_are(1)


def _devices_are(quantity: int) -> None:
    rewrite_as_reported("UPDATE usage_gpuallocation SET quantity = %s WHERE accelerator = 'NVIDIA-DEAR'", [quantity])


def period() -> BillingPeriod:
    return BillingPeriod.objects.get(month=MONTH)


def test_a_close_that_died_before_its_bills_is_finished_or_opened_again(tmp_path: Path) -> None:
    apply(tmp_path, billing=REOPENING)
    ingest_tokens(token_record(1))
    factories.person("lin", "finance")
    factories.person("ada", "approver")
    period_open(month=MONTH)
    close_cut_off(MONTH, OVER)
    with pytest.raises(SetUpFileError, match=r"is being closed: finish `manage\.py period_close 2026-10` first"):
        apply(tmp_path, billing={**REOPENING, "review": "four-eyes"})
    asked = reopening_request(month=MONTH, reason="the wrong month", actor="lin", now=LATER)
    reopening_approve(reopening_id=asked.pk, actor="ada", now=LATER)
    assert apply(tmp_path, billing={**REOPENING, "review": "four-eyes"}).changes
    with pytest.raises(PeriodError, match="was opened again while it was being closed"):
        closing._bill(MONTH, "ops", LATER, None, no_progress)
    assert not Charge.objects.exists()
    close(now=LATER)
    assert period().status == "closed"


def test_a_team_that_cannot_be_billed_is_held_and_the_others_are_drafted(broken: None) -> None:
    with pytest.raises(TeamsBlockedError, match="1 of its teams cannot be billed, 1 invoices of others are drafted"):
        close()
    assert period().status == "closing"
    nlp = Invoice.objects.get()
    assert (nlp.team.code, nlp.status) == ("nlp", "approved")
    assert next((line["kind"], line["amount"]) for line in nlp.draft["lines"]) == ("gpu", "209.62")
    assert set(Charge.objects.values_list("team", flat=True)) == {"nlp"}
    (held,) = BlockedTeam.objects.all()
    assert (held.team, "numeric field overflow" in held.problem) == ("cv", True)
    assert held.amount == Decimal("1440000000000000078.61")


def test_once_repaired_closing_again_bills_the_team_and_closes_the_month(broken: None) -> None:
    with pytest.raises(TeamsBlockedError):
        close()
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 1  # the others do not wait
    before = Invoice.objects.get(team__code="nlp").sha256
    repair()
    close(now=LATER)
    assert (period().status, BlockedTeam.objects.count()) == ("closed", 0)
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 1
    cv = Invoice.objects.get(team__code="cv")
    assert cv.total == Decimal("720000078.61")  # 720 h at 1,000,000.00, and 78.61
    numbers = list(Invoice.objects.order_by("sequence").values_list("number", "sequence", "previous_sha256"))
    assert numbers == [("AI-INFRA-2026-000001", 1, ""), ("AI-INFRA-2026-000002", 2, before)]
    assert all(proof.holds for proof in period_verify(month=MONTH))
    report = build_report(period(), now=LATER)
    assert report.closable
    assert all(check.ok for check in report.checks)


def test_the_command_reports_who_is_held_and_exits_with_3(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    done = Manage(capsys)("period_close", MONTH, "--json")
    printed: dict[str, Any] = json.loads(done.out)
    assert (done.status, printed["status"]) == (3, "closing")
    assert [item["subject"] for item in printed["exceptions"] if item["blocks"]] == ["cv"]
    assert "cv: DataError: numeric field overflow" in printed["message"]


def set_up(tmp_path: Path, **changed: Any) -> Applied:
    version = SET_UP["price_versions"][0]
    return apply(tmp_path, price_versions=[{**version, "gpu": [*version["gpu"], DEAR]}], **changed)


def test_a_month_that_holds_a_team_is_opened_again_by_two_persons(broken: None, tmp_path: Path) -> None:
    set_up(tmp_path, billing=REOPENING)
    factories.person("lin", "finance")
    factories.person("ada", "approver")
    with pytest.raises(TeamsBlockedError):
        close()
    asked = reopening_request(month=MONTH, reason="cv's ledger is broken", actor="lin", now=LATER)
    reopening_approve(reopening_id=asked.pk, actor="ada", now=LATER)
    assert (period().status, period().close_seq, BlockedTeam.objects.count()) == ("open", None, 0)
    assert Invoice.objects.get().void_reason == "2026-10 was opened again: cv's ledger is broken"
    printed = AuditEntry.objects.get(action="period_reopen").detail
    assert (printed["held"], printed["drafts"], printed["approved_by"]) == (["cv"], 1, "ada")
    assert PeriodReopening.objects.get().closed_at is None
    repair()
    close(now=LATER)
    totals = dict(Invoice.objects.exclude(status="void").values_list("team__code", "total"))
    tokens = totals["nlp"] - Decimal("209.62")
    assert totals == {"nlp": Decimal("209.62") + tokens, "cv": Decimal("720000078.61")}
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 2
    assert all(proof.holds for proof in period_verify(month=MONTH))
    assert all(check.ok for check in build_report(period(), now=LATER).checks)


def test_a_held_month_with_an_issued_invoice_is_never_opened_again(broken: None, tmp_path: Path) -> None:
    set_up(tmp_path, billing=REOPENING)
    factories.person("lin", "finance")
    with pytest.raises(TeamsBlockedError):
        close()
    invoices_issue(month=MONTH, actor="fin", now=LATER)
    with pytest.raises(ReopeningError, match="are issued and never change: repair the facts of the teams"):
        reopening_request(month=MONTH, reason="x", actor="lin", now=LATER)
    client = signed_in(User.objects.get(username="lin"))
    page = client.get(f"/close/?month={MONTH}").content.decode()
    assert "The other teams are billed: 1 invoice or draft." in page
    assert "Invoices are issued, so the month is not opened again" in page
    assert "Ask to open it again" not in page


def test_the_database_opens_no_billed_month_that_is_being_closed_without_an_approval(broken: None) -> None:
    with pytest.raises(TeamsBlockedError):
        close()
    for statement in (
        "UPDATE invoices_billingperiod SET status = 'open', close_seq = NULL", "DELETE FROM invoices_billingperiod",
    ):  # fmt: skip
        refused = pytest.raises(DatabaseError, match="period 2026-10 is being closed and has bills")
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def taken_over(tmp_path: Path) -> None:
    """The month is issued without cv, whose usage the platform then takes, and closed."""
    with pytest.raises(TeamsBlockedError):
        close()
    invoices_issue(month=MONTH, actor="fin", now=LATER)
    owners = [owner for owner in OWNERS if owner["namespace"] != "cv"]
    set_up(tmp_path, ownership=owners, platform=[*SET_UP["platform"], *PLATFORM])
    close(now=LATER)


def test_the_set_up_may_change_what_concerns_the_held_team_while_its_month_is_being_closed(
    broken: None, tmp_path: Path
) -> None:
    taken_over(tmp_path)
    assert (period().status, BlockedTeam.objects.count()) == ("closed", 0)
    assert Invoice.objects.get().team.code == "nlp"
    assert set(Charge.objects.values_list("team", "platform")) == {("nlp", False), ("platform", True)}
    assert all(proof.holds for proof in period_verify(month=MONTH))
    assert all(check.ok for check in build_report(period(), now=LATER).checks)


def test_what_the_platform_took_over_to_close_is_billed_later_as_a_change_of_closed_time(
    broken: None, tmp_path: Path
) -> None:
    """Once repaired: 720 h at 1,000,000.00 and 78.61 on a rebill of cv, which had no invoice; two approvers."""
    taken_over(tmp_path)
    repair()
    for name, role in (("lin", "finance"), ("lea", "finance"), ("ada", "approver"), ("ben", "approver")):
        factories.person(name, role)
    change = retroactive_propose(
        kind="namespace", name="cv-again", fact={"scope": "hq-1", "name": "cv", "team": "cv"},
        valid_from=datetime(2026, 9, 30, 16, tzinfo=UTC), valid_until=None, reason="its ledger is mended", evidence="INC-1",
        actor="lin", now=LATER,
    )  # fmt: skip
    retroactive_acknowledge(change_id=change.pk, team="cv", actor="lea", now=LATER)
    for approver in ("ada", "ben"):
        retroactive_approve(change_id=change.pk, actor=approver, now=LATER)
    note = Note.objects.get()
    assert (note.team.code, note.kind, note.total) == ("cv", "rebill", Decimal("720000078.61"))


@pytest.mark.parametrize(
    ("changed", "printed"),
    [
        ({"ownership": [*OWNERS, {**OWNERS[0], "namespace": "nlp-train", "team": "cv", "valid_from": "2026-10-01"}]},
         "this would change what nlp owes for 2026-10, whose close blocks other teams only: change what concerns cv"),
        ({"ownership": [OWNERS[0]], "moved": True}, "this would change what nlp owes for 2026-10"),
    ],
)  # fmt: skip
def test_the_set_up_changes_nothing_that_is_billed_while_a_month_is_being_closed(
    broken: None, tmp_path: Path, changed: dict[str, Any], printed: str
) -> None:
    with pytest.raises(TeamsBlockedError):
        close()
    if changed.pop("moved", False):
        changed["ownership"] = [*OWNERS, {**OWNERS[1], "team": "nlp", "valid_from": "2026-10-05"}]
    with pytest.raises(SetUpFileError, match=printed):
        set_up(tmp_path, **changed)
    assert set_up(tmp_path).changes == []
    repair()
    close(now=LATER)
    assert all(proof.holds for proof in period_verify(month=MONTH))


def test_a_repair_that_changes_another_teams_bill_is_refused_by_the_next_close(broken: None) -> None:
    with pytest.raises(TeamsBlockedError):
        close()
    repair()
    rewrite_as_reported("UPDATE usage_gpuallocation SET quantity = 9 WHERE namespace = 'nlp-train'")
    with pytest.raises(PeriodError, match="the repair changed what is billed already of nlp in 2026-10"):
        close(now=LATER)
    assert (period().status, Invoice.objects.count()) == ("closing", 1)


def test_what_is_drafted_of_a_month_that_is_not_closed_is_no_sum_of_it(broken: None) -> None:
    """nlp's draft is a part of October; what cv owes is not known before the repair."""
    with pytest.raises(TeamsBlockedError):
        close()
    assert Invoice.objects.get().team.code == "nlp"
    (item,) = months_compared(Team.objects.all())
    assert (item.month, item.state, item.net) == ("2026-10", "open", None)

    repair()
    close()
    (item,) = months_compared(Team.objects.all())
    assert (item.state, item.net) == ("closed", sum(invoice.total for invoice in Invoice.objects.all()))
