"""The estimate of an open month for an early book close: balanced, flagged, reversed, and the same each time."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client

from billing.closing.models import Accrual
from billing.closing.services.accrual import AccrualError, Accrued, accrual_make
from billing.closing.services.closing import period_close
from billing.exports.journal import Chart, JournalError
from billing.invoices.models import Invoice
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.commands import Manage
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, OCTOBER_OVER, bill, credit, part, people
from tests.factories.pages import csv_rows

pytestmark = pytest.mark.django_db
IN_OCTOBER = datetime(2026, 10, 28, 9, tzinfo=UTC)


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def used(number: int = 1, namespace: str = "nlp-train", gpus: int = 8, day: str = "2026-10-10") -> None:
    """Two hours: 160.00 for eight devices."""
    start, end = f"{day}T00:00:00Z", f"{day}T02:00:00Z"
    ingest_allocations(
        allocation_record(number, namespace=namespace, quantity=gpus, started_at=start, ended_at=end, observed_until=end)
    )


def estimate(month: str = "2026-10", now: datetime = IN_OCTOBER, **changed: Any) -> Accrued:
    return accrual_make(month=month, chart=Chart(), actor="fin", now=now, **changed)


def sides(found: list[dict[str, str]]) -> dict[tuple[str, str], Decimal]:
    """Debits less credits by account and cost centre."""
    sums: dict[tuple[str, str], Decimal] = {}
    for row in found:
        name = (row["account"], row["cost_center"])
        sums[name] = sums.get(name, Decimal(0)) + Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
    return sums


def test_amounts_by_team_and_account_with_their_reversal() -> None:
    """nlp: 16 GPU-hours at 10, 160.00; cv: 2 GPU-hours, 20.00."""
    used()
    used(2, "cv", 1)
    made = estimate()
    found = csv_rows(made.csv)
    reported = [(row["line_id"], row["reverses"], row["posting_date"], row["cost_center"], row["debit"], row["credit"])
            for row in found]  # fmt: skip
    name = "GL-ACC-AI-INFRA-2026-10-1"
    assert reported == [
        (f"{name}-cv-001", "", "2026-10-31", "CC-220", "20.00", ""),
        (f"{name}-cv-002", "", "2026-10-31", "AI-INFRA", "", "20.00"),
        (f"{name}-nlp-001", "", "2026-10-31", "CC-210", "160.00", ""),
        (f"{name}-nlp-002", "", "2026-10-31", "AI-INFRA", "", "160.00"),
        (f"{name}-cv-001-R", f"{name}-cv-001", "2026-11-01", "CC-220", "", "20.00"),
        (f"{name}-cv-002-R", f"{name}-cv-002", "2026-11-01", "AI-INFRA", "20.00", ""),
        (f"{name}-nlp-001-R", f"{name}-nlp-001", "2026-11-01", "CC-210", "", "160.00"),
        (f"{name}-nlp-002-R", f"{name}-nlp-002", "2026-11-01", "AI-INFRA", "160.00", ""),
    ]
    assert set(sides(found).values()) == {Decimal(0)}
    assert {row["estimate"] for row in found} == {"yes"}
    assert {row["as_of"] for row in found} == {"2026-10-28T09:00:00+00:00"}
    assert {row["sha256"] for row in found} == {made.accrual.sha256}
    assert AuditEntry.objects.filter(action="accrual_make").count() == 1


def test_the_same_estimate_is_handed_out_until_another_is_asked_for() -> None:
    """160.00, then 320.00: the second file takes the first one back, so that 320.00 stand until they are reversed."""
    used()
    first = estimate()
    used(2)
    again = estimate(now=OCTOBER_OVER)
    assert (again.csv, again.created) == (first.csv, False)
    second = estimate(now=OCTOBER_OVER, again=True)
    assert second.accrual.name == "ACC-AI-INFRA-2026-10-2"
    posted = csv_rows(first.csv) + csv_rows(second.csv)
    assert len({row["line_id"] for row in posted}) == len(posted)
    in_october = [row for row in posted if row["posting_date"] == "2026-10-31"]
    assert sides(in_october)["internal AI compute", "CC-210"] == Decimal("320.00")
    assert set(sides(posted).values()) == {Decimal(0)}


def test_what_cannot_be_estimated_is_named() -> None:
    used(namespace="nobodys")
    used(2)
    document = estimate(now=OCTOBER_OVER).document
    assert document["left_out"] == [
        {"kind": "unowned_namespace", "unit": "gpu_seconds", "exceptions": 1, "quantity": "57600"}
    ]
    assert [journal["amount"] for journal in document["journals"]] == ["160.00"]


def test_what_is_left_out_is_stated_to_the_last_digit() -> None:
    """999,999 thirds of a device for 30 days less a microsecond, which takes 30 digits, and one device for a second."""
    start, end, second = "2026-10-01T00:00:00Z", "2026-10-30T23:59:59.999999Z", "2026-10-01T00:00:01Z"
    thirds = {"quantity": 999_999, "device_fraction": "0.333333333333", "ended_at": end, "observed_until": end}
    one = {"quantity": 1, "ended_at": second, "observed_until": second}
    ingest_allocations(
        allocation_record(1, namespace="nobodys", started_at=start, **thirds),
        allocation_record(2, namespace="strays", started_at=start, **one),
    )
    assert estimate(now=OCTOBER_OVER).document["left_out"] == [
        {"kind": "unowned_namespace", "unit": "gpu_seconds", "exceptions": 2, "quantity": "863999135999.802667864000333333"}
    ]


def test_notes_of_the_open_month_are_part_of_it() -> None:
    """October is billed at 160.00; 30.00 of it are credited in November, where 160.00 more are used: 130.00."""
    used()
    bill()
    people()
    credit(part("30.00"))
    used(2, day="2026-11-10")
    found = csv_rows(estimate("2026-11", IN_NOVEMBER).csv)
    ours = [row for row in found if row["posting_date"] == "2026-11-30"]
    assert sides(ours)["internal AI compute", "CC-210"] == Decimal("130.00")


def test_a_closed_month_needs_no_estimate_and_one_to_come_has_none() -> None:
    used()
    with pytest.raises(AccrualError, match="has not begun"):
        estimate("2026-12")
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    with pytest.raises(AccrualError, match="export its journal instead"):
        estimate(now=NOVEMBER_OVER)


def test_the_estimate_of_a_complete_month_is_its_bill() -> None:
    used()
    ingest_tokens(token_record(input_tokens=3_000_000, output_tokens=500_000))
    document = estimate(now=OCTOBER_OVER).document
    bill()
    invoice = Invoice.objects.get()
    assert [journal["amount"] for journal in document["journals"]] == [str(invoice.total)]


def test_a_team_without_a_cost_centre_stops_it(tmp_path: Path) -> None:
    apply(tmp_path, teams=[{"code": "nlp"}, *SET_UP["teams"][1:]])
    used()
    with pytest.raises(JournalError, match="team nlp has no cost centre"):
        estimate()
    assert not Accrual.objects.exists()


def test_an_estimate_never_changes() -> None:
    used()
    estimate()
    for statement in ("UPDATE closing_accrual SET document = '{}'", "DELETE FROM closing_accrual"):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_command_button_and_api_hand_out_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used()
    fin = person("fin", "finance")
    answer = json.loads(Manage(capsys)("accrual", "2026-10", "--out", str(tmp_path / "a.csv"), "--json", "--by", "fin").out)
    assert (answer["estimate"], answer["created"]) == (True, True)
    client = Client()
    client.force_login(fin)
    assert "Accrual (CSV)" in client.get("/close/", {"month": "2026-10"}).content.decode()
    response = client.post("/close/2026-10/accrual/")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response.content == (tmp_path / "a.csv").read_bytes()
    _, token = api_token_create(name="ledger", scopes=["invoices:read"], actor="ops")
    reported = Client().get("/api/v1/periods/2026-10/accrual", headers={"Authorization": f"Bearer {token}"}).json()
    assert reported["sha256"] == answer["sha256"]
    assert reported["journals"][0]["entries"][0]["debit"] == "160.00"
    with pytest.raises(SystemExit, match="2"):
        call_command("accrual", "October", "--out", str(tmp_path / "b.csv"), "--by", "fin")
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert "Accrual (CSV)" not in client.get("/close/", {"month": "2026-10"}).content.decode()
