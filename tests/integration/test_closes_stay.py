"""Closes are added and taken back with their months alone; one that somebody changed beside that is found and named."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction

from billing.closing.services.closing import period_close
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.invoices.services.invoices import invoices_issue
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person
from tests.factories.closing import close_cut_off
from tests.factories.commands import Manage
from tests.stored_rows import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
AUGUST, SEPTEMBER, OCTOBER = "2026-08", "2026-09", "2026-10"
OVER = {
    AUGUST: datetime(2026, 9, 1, 0, 5, tzinfo=UTC), SEPTEMBER: datetime(2026, 10, 1, 0, 5, tzinfo=UTC),
    OCTOBER: datetime(2026, 11, 1, 0, 5, tzinfo=UTC),
}  # fmt: skip
TAKE_BACK = "UPDATE usage_close SET withdrawn_at = now() WHERE close_seq = {}"
ADD = """INSERT INTO usage_close (close_seq, start, "end", rating_rules)
         VALUES ({}, '2026-09-30T16:00:00Z', '2026-10-31T16:00:00Z', 1)"""


def hours(number: int, day: str) -> dict[str, object]:
    """One GPU for ten hours: 100.00."""
    over = f"{day}T10:00:00Z"
    return allocation_record(number, quantity=1, started_at=f"{day}T00:00:00Z", ended_at=over, observed_until=over)


@pytest.fixture(autouse=True, scope="module")
def house(for_all_tests: Path) -> None:
    prices = [{**SET_UP["price_versions"][0], "valid_from": "2026-07-31T16:00:00Z"}]
    apply(for_all_tests, billing={**SET_UP["billing"], "reopening": "two-persons"}, price_versions=prices)
    for number, day in enumerate(("2026-08-10", "2026-09-10", "2026-10-10"), start=1):
        ingest_allocations(hours(number, day))
    for name, role in (("lin", "finance"), ("ada", "approver")):
        person(name, role)


def close(*months: str) -> None:
    for month in months:
        period_close(month=month, actor="lin", now=OVER[month])


def refusal(statement: str) -> str:
    """What the database says of a statement; nothing where it lets it through, which is then undone."""
    with transaction.atomic(), connection.cursor() as cursor:
        try:
            with transaction.atomic():
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                cursor.execute(statement)
        except DatabaseError as error:
            return str(error).split("\n")[0]
        transaction.set_rollback(True)
    return ""


def test_only_the_last_close_of_a_month_that_may_open_again_is_taken_back() -> None:
    close(AUGUST, SEPTEMBER)
    assert refusal(TAKE_BACK.format(1)) == "close 1 stays: a later one stands"
    assert refusal(TAKE_BACK.format(2)).startswith("close 2 stays: nobody approved to open its month again")
    invoices_issue(month=SEPTEMBER, actor="lin", now=OVER[SEPTEMBER])
    assert refusal(TAKE_BACK.format(2)).startswith("close 2 stays: nobody approved to open its month again")


def test_no_close_is_added_but_for_a_month_that_is_being_closed() -> None:
    close(AUGUST, SEPTEMBER)
    nobodys = "is the next one of no period that is being closed"
    assert refusal(ADD.format(3)) == f"close 3 {nobodys}"
    close(OCTOBER)
    assert refusal(ADD.format(4)) == f"close 4 {nobodys}"
    assert refusal(ADD.format(0)) == f"close 0 {nobodys}"


def test_no_period_is_closed_beside_its_close() -> None:
    close(AUGUST)
    close_cut_off(SEPTEMBER, OVER[SEPTEMBER])
    period = "UPDATE invoices_billingperiod SET {} WHERE month = '2026-09'"
    assert refusal(period.format("status = 'open', close_seq = NULL")) == "period 2026-09 is closed by close 2"
    assert refusal(period.format("close_seq = 3")) == "period 2026-09 is not closed by close 3"
    added = """INSERT INTO invoices_billingperiod (month, zone, start, "end", status, close_seq, closed_by)
               VALUES ('2026-10', 'UTC', '2026-10-01Z', '2026-11-01Z', '{}', {}, '')"""
    assert refusal(added.format("closed", 1)) == "period 2026-10 comes open"
    assert refusal(added.format("open", "NULL")) == ""


def test_a_cut_off_without_bills_is_taken_back_and_then_bills_nothing() -> None:
    close_cut_off(AUGUST, OVER[AUGUST])
    with connection.cursor() as cursor:
        cursor.execute(TAKE_BACK.format(1))
    closed = "UPDATE invoices_billingperiod SET status = 'closed' WHERE month = '2026-08'"
    assert refusal(closed) == "period 2026-08 is not closed by close 1"


def test_every_change_of_a_close_is_in_the_audit_log() -> None:
    close(AUGUST)
    asked = reopening_request(month=AUGUST, reason="site B", actor="lin", now=OVER[AUGUST])
    reopening_approve(reopening_id=asked.pk, actor="ada", now=OVER[AUGUST])
    rows = AuditEntry.objects.filter(subject="usage_close 1").order_by("id").values_list("action", "detail")
    added, taken_back = rows
    assert (added[0], added[1]["after"]["close_seq"]) == ("row_insert", 1)
    assert taken_back[0] == "row_update"
    assert datetime.fromisoformat(taken_back[1]["after"]["withdrawn_at"]) == OVER[AUGUST]


def test_closes_as_the_months_made_them_are_proven(capsys: pytest.CaptureFixture[str]) -> None:
    close(AUGUST)
    asked = reopening_request(month=AUGUST, reason="site B", actor="lin", now=OVER[AUGUST])
    reopening_approve(reopening_id=asked.pk, actor="ada", now=OVER[AUGUST])
    manage = Manage(capsys)
    assert manage("period_verify", "--all").status == 0
    close(AUGUST, SEPTEMBER)
    assert "FAIL" not in manage("period_verify", "--all").out


TAKEN_BACK = "close {} stands expected, found taken back at"
TAMPERS = {
    TAKE_BACK.format(1): (AUGUST, TAKEN_BACK.format(1)),
    TAKE_BACK.format(2): (SEPTEMBER, TAKEN_BACK.format(2)),
    "DELETE FROM usage_close WHERE close_seq = 1": (AUGUST, "close 1 expected, found none of that number"),
    "UPDATE usage_close SET \"end\" = \"end\" - interval '1 hour' WHERE close_seq = 1": (
        AUGUST,
        "close 1 of 2026-07-31T16:00:00+00:00 to 2026-08-31T16:00:00+00:00 expected, "
        "found 2026-07-31T16:00:00+00:00 to 2026-08-31T15:00:00+00:00",
    ),
    "UPDATE usage_close SET rating_rules = 1 WHERE close_seq = 1": (AUGUST, "rules 1"),
    ADD.format(7): ("the closes", "close 7 taken back or of a period expected, found it stands, of none"),
}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("tamper", TAMPERS)
def test_what_a_superuser_changed_of_a_close_is_named_before_and_after_later_closes(
    tamper: str, later: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    close(AUGUST, SEPTEMBER)
    if later:
        rewrite(tamper)
        ingest_allocations(hours(9, "2026-08-20"))
        with connection.cursor() as cursor:  # the row that was added stands in the way of the close of its month
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if "INSERT" not in tamper:
            close(OCTOBER)
    else:
        rewrite(tamper)
    where, said = TAMPERS[tamper]
    done = Manage(capsys)("period_verify", "--all")
    assert done.status == 3
    (line,) = [line for line in done.out.splitlines() if said in line]
    assert where in line
    audited = Manage(capsys)("audit_verify")
    assert (audited.status, said in audited.out) == (3, True)
    if tamper.startswith("UPDATE") and not later:
        reported = Manage(capsys)("period_report", where)
        assert (reported.status, said in reported.out) == (3, True)


def test_closes_that_nobody_changed_are_in_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    close(AUGUST)
    assert "the close is as it was made" not in Manage(capsys)("period_report", AUGUST).out
    assert "closes of" not in Manage(capsys)("audit_verify").out
