"""The close of a large month that is over is prepared: closing it is then to adopt what would be billed anyway.

Whenever that would not be the same, the month is closed as if nothing had been prepared.
"""

import json
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.test import Client

from billing.closing.prepared import FACTS, standing
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.energy import meter_reading_put
from billing.closing.services.preparing import _drop, close_prepare, closes_prepare
from billing.closing.services.previews import month_assess
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.closing.services.showback import billing_mode_put
from billing.closing.services.waivers import exception_waive
from billing.corrections.services.proof import period_verify
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.invoicing.models import BillingPeriod, Invoice, InvoiceLine, InvoiceSums, MonthPreview, PreparedClose
from billing.portal.recovery import months_compared
from billing.rating.models import Charge, EfficiencyVerdict, IdleShare, PoolCapacity, PoolTime
from billing.tenancy.audit import audit_record
from billing.tenancy.models import AuditEntry, Team
from billing.usage.models import ClosedWindow
from billing.usage.services import Reporter, efficiency_ingest
from metering.records import EfficiencySample, decode_batch
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.integration.test_allocation import capacity
from tests.integration.test_issue_concurrency import die_at

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
SEPTEMBER_OVER = datetime(2026, 10, 1, 0, 5, tzinfo=UTC)
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
LATER = datetime(2026, 11, 3, tzinfo=UTC)
PRICES = [{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}]
POLICIES = {
    "price_versions": PRICES,
    "efficiency_policies": [
        {"name": "std", "valid_from": "2026-01-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
         "reward": "0.10"}
    ],
    "interruption_policies": [{"name": "carried", "valid_from": "2026-01-01", "preempted": {"cap_hours": "1"}}],
    "allocation_policies": [
        {"name": "idle-v1", "valid_from": "2026-01-01",
         "idle": [{"cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "6.0000",
                   "method": "proportional"}]}
    ],
}  # fmt: skip

def house(directory: Path, **changed: Any) -> None:
    apply(directory, **{**POLICIES, **changed})


def held(number: int, *, hours: int = 2, until: str | None = None, **changed: Any) -> None:
    """One device from the 20th, at 10 an hour."""
    start = datetime(2026, 10, 20, tzinfo=UTC)
    end = until or (start + timedelta(hours=hours)).isoformat()
    told = {"quantity": 1, "started_at": start.isoformat(), "ended_at": end, "observed_until": end}
    ingest_allocations(allocation_record(number, **{**told, **changed}), now=LATER)


def goes_on(number: int = 3) -> None:
    """One device from the 20th, seen eight hours after the month, 280 hours of it in October."""
    held(number, until="2026-11-01T00:00:00Z", ended_at=None, end_reason=None)


def measured(share: str, uid: str = "uid-1") -> None:
    raw = json.dumps({
        "cluster": "hq-1", "pod_uid": uid, "start": "2026-10-10T00:00:00Z", "end": "2026-10-10T02:37:13Z",
        "gpu_seconds": "75464", "mfu": share, "hfu": share, "dtype": "bf16", "coverage": "1",
    }).encode()  # fmt: skip
    batch: Any = decode_batch(EfficiencySample, [raw])
    records = [(0, batch.records[0][1], raw)]
    assert efficiency_ingest(records=records, reporter=Reporter("tests", "usage/efficiency"), now=LATER).accepted == 1


@pytest.fixture
def october(tmp_path: Path) -> Path:
    """Eight devices of nlp and three of cv for 2 h 37 min 13 s, one of nlp that goes on, tokens of nlp."""
    house(tmp_path)
    person("fin", "finance", "approver")
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=3), now=LATER)
    goes_on()
    ingest_tokens(token_record(1), now=LATER)
    capacity(units=100)
    return tmp_path


@pytest.fixture
def prepared(october: Path) -> Path:
    assert close_prepare(month="2026-10", now=OVER)
    return october


def close(month: str = "2026-10", now: datetime = LATER) -> bool:
    """Close the month; whether by what was prepared of it."""
    assert period_close(month=month, actor="ops", now=now).changed
    cut_off = AuditEntry.objects.filter(action="period_cut_off", subject=month).latest("id")
    return "prepared_at" in cut_off.detail


def of_close(ordinal: int) -> dict[str, Any]:
    """Every row that a close wrote, but its own number and keys."""
    found: dict[str, Any] = {}
    for model in (Charge, EfficiencyVerdict, IdleShare, PoolCapacity, PoolTime):
        rows = model._default_manager.filter(closing=ordinal).values()
        found[model.__name__] = sorted(str({**row, "id": None, "closing": None}) for row in rows)
    invoices = Invoice.objects.filter(period__ordinal=ordinal).order_by("team__code")
    kept = [field.name for field in Invoice._meta.concrete_fields if field.name not in ("id", "prepared", "period")]
    found["invoices"] = list(invoices.values(*kept))
    lines = InvoiceLine.objects.filter(invoice__in=invoices).order_by("invoice__team__code", "position").values()
    found["lines"] = [{**row, "id": None, "invoice_id": None} for row in lines]
    sums = InvoiceSums.objects.filter(invoice__in=invoices).order_by("invoice__team__code").values()
    found["sums"] = [{**row, "invoice_id": None} for row in sums]
    return found


def closed_without_preparing() -> dict[str, Any]:
    """What a close leaves, and nothing of it."""
    with transaction.atomic():
        assert not close()
        left = of_close(BillingPeriod.objects.get(month="2026-10").ordinal or 0)
        transaction.set_rollback(True)
    return left


@pytest.mark.parametrize("shadow", [False, True])
def test_an_adopted_close_left_what_a_close_leaves(october: Path, shadow: bool) -> None:
    measured("0.60")
    if shadow:
        billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="tries it", actor="fin", now=OVER)
    expected = closed_without_preparing()
    assert [invoice["shadow"] for invoice in expected["invoices"]] == [shadow, False]
    assert [len(expected[name]) for name in ("invoices", "IdleShare", "PoolCapacity", "PoolTime")] == [2, 2, 1, 1]
    assert {line["kind"] for line in expected["lines"]} == {"gpu", "tokens", "efficiency", "idle"}
    assert close_prepare(month="2026-10", now=OVER)
    assert close()
    assert of_close(1) == expected
    assert not PreparedClose.objects.exists()
    period = BillingPeriod.objects.get()
    assert (period.status, period.ordinal, period.closed_by, period.closed_at) == ("closed", 1, "ops", LATER)
    assert list(AuditEntry.objects.filter(action__startswith="period_").values_list("action", "detail__ordinal")) == [
        ("period_cut_off", 1), ("period_close", 1),
    ]  # fmt: skip
    assert invoices_issue(month="2026-10", actor="ops", now=LATER) == (1 if shadow else 2)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_nobody_sees_what_is_prepared(prepared: Path, django_assert_num_queries: Any) -> None:
    assert (Invoice.everything.count(), Invoice.objects.count(), Charge.objects.count() > 0) == (2, 0, True)
    client = Client()
    client.force_login(person("root", "finance", "approver", "auditor"))
    for path in ("/", "/invoices/", "/close/", "/teams/nlp/", "/recovery/", "/spending/", "/search/?q=nlp"):
        page = client.get(f"{path}{'&' if '?' in path else '?'}month=2026-10")
        assert page.status_code == 200, path
        assert "/invoices/1/" not in page.content.decode(), path
    for draft in Invoice.everything.all():
        assert client.get(f"/invoices/{draft.pk}/").status_code == 404
    assert months_compared(Team.objects.all()) == []
    assert client.get("/api/v1/invoices").json()["results"] == []
    assert client.get("/api/v1/charges").json()["results"] == []
    assert BillingPeriod.objects.get().status == "open"
    with pytest.raises(SystemExit):
        call_command("invoice_issue", "2026-10")


# What must not be missed


def late_september() -> None:
    held(9, started_at="2026-09-10T00:00:00Z", until="2026-09-10T01:00:00Z")


def moved(directory: Path) -> None:
    house(directory, ownership=[{**row, "team": "nlp"} for row in SET_UP["ownership"]])


def priced(directory: Path) -> None:
    dearer = {**PRICES[0], "name": "dearer", "valid_from": "2026-10-20T00:00:00+08:00"}
    house(directory, price_versions=[*PRICES, {**dearer, "gpu": [{**PRICES[0]["gpu"][0], "price_per_gpu_hour": "20.0000"}]}])


CHANGES: dict[str, Callable[[Path], Any]] = {
    "a hold": lambda _: held(4),
    "a hold ended before it was last seen": lambda _: held(3, until="2026-10-20T01:00:00Z", end_reason="completed"),
    "a hold of a month closed before": lambda _: late_september(),
    "why a hold ended": lambda _: held(3, until="2026-10-31T16:30:00Z", end_reason="preempted"),
    "tokens": lambda _: ingest_tokens(token_record(2), now=LATER),
    "tokens of the last hour": lambda _: ingest_tokens(token_record(2, time="2026-10-31T15:59:59Z"), now=LATER),
    "tokens of the first hour": lambda _: ingest_tokens(token_record(2, time="2026-09-30T16:00:00Z"), now=LATER),
    "tokens of a month closed before": lambda _: ingest_tokens(token_record(2, time="2026-09-12T00:00:00Z"), now=LATER),
    "a sample": lambda _: measured("0.10"),
    "capacity": lambda _: capacity(units=5, node="n2"),
    "an owner": moved,
    "a price": priced,
    "the name of a team": lambda path: house(path, teams=[{**SET_UP["teams"][0], "name": "Language"}, SET_UP["teams"][1]]),
    "who issues": lambda path: house(path, billing={**SET_UP["billing"], "issuer": "INFRA"}),
    "who reviews": lambda path: house(path, billing={**SET_UP["billing"], "review": "four-eyes"}),
    "a policy": lambda path: house(path, interruption_policies=[
        *POLICIES["interruption_policies"], {"name": "more", "valid_from": "2026-10-15", "node_lost": "platform"}]),
    "who is charged": lambda _: billing_mode_put(
        team="cv", from_month="2026-10", mode="shadow", reason="tries it", actor="fin", now=LATER),
    "another close": lambda _: period_close(month="2026-09", actor="ops", now=LATER),
    "other programs": lambda _: None,
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_came_since_is_billed(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house(tmp_path)
    person("fin", "approver")
    if "closed before" in what:
        ingest_tokens(token_record(8, time="2026-09-12T00:00:00Z"), now=SEPTEMBER_OVER)
        period_close(month="2026-09", actor="ops", now=SEPTEMBER_OVER)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=3), now=LATER)
    goes_on()
    ingest_tokens(token_record(1), now=LATER)
    capacity(units=100)
    assert close_prepare(month="2026-10", now=OVER)
    before = ClosedWindow.objects.latest("ordinal").ordinal
    assert standing(period_open(month="2026-10"))
    CHANGES[what](tmp_path)
    if what == "other programs":
        monkeypatch.setattr("billing.closing.prepared.programs", lambda: "others")
    assert standing(period_open(month="2026-10")) is None
    with transaction.atomic():
        Invoice.everything.filter(prepared__isnull=False).update(total=0)  # whoever adopted it all the same would tell
        assert not close()
        transaction.set_rollback(True)
    expected = closed_without_preparing()
    assert close_prepare(month="2026-10", now=LATER)
    assert Charge.objects.filter(closing=before).count() == 0
    assert close()
    assert of_close(BillingPeriod.objects.get(month="2026-10").ordinal or 0) == expected
    assert invoices_issue(month="2026-10", actor="ops", now=LATER) == Invoice.objects.filter(status="issued").count()
    assert all(proof.holds for proof in period_verify(month="2026-10"))


UNCHANGED: dict[str, Callable[[], Any]] = {
    "usage of the next month": lambda: (
        held(4, started_at="2026-10-31T16:00:00Z", until="2026-11-01T16:00:00Z"),
        ingest_tokens(token_record(2, time="2026-10-31T16:00:00Z"), now=LATER)),
    "the same again": lambda: (goes_on(), ingest_tokens(token_record(1), now=LATER)),
    "an entry of the audit log": lambda: audit_record(actor="ops", action="test", subject="x"),
    "a person": lambda: person("new", "finance"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNCHANGED)
def test_what_changes_no_bill_leaves_it_prepared(what: str, prepared: Path) -> None:
    UNCHANGED[what]()
    assert close()


def test_a_hold_that_is_seen_beyond_the_month_leaves_it_prepared(october: Path) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    held(3, until="2026-11-02T00:00:00Z", ended_at=None, end_reason=None)
    assert close()
    held(3, until="2026-11-02T03:00:00Z", end_reason="completed")
    assert not close("2026-11", now=datetime(2026, 12, 1, tzinfo=UTC))
    assert Charge.objects.filter(closing=2, correction=True).count() == 0
    hours = Charge.objects.get(closing=2).usage_quantity / 3_600_000_000
    assert hours == 35  # from 2026-10-31T16:00Z


@pytest.mark.parametrize("seen_before_the_close", [False, True])
def test_a_hold_may_end_earlier_in_a_month_that_is_only_prepared(october: Path, seen_before_the_close: bool) -> None:
    """Seen in December, and then told to have ended on the 10th of November, 224 hours after October."""
    december = datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
    if not seen_before_the_close:
        assert not close()
    held(3, until="2026-12-01T00:00:00Z", ended_at=None, end_reason=None)
    if seen_before_the_close:
        assert not close()
    assert close_prepare(month="2026-11", now=december)
    times = {"started_at": "2026-10-20T00:00:00Z", "ended_at": "2026-11-10T00:00:00Z", "observed_until": None}
    assert ingest_allocations(allocation_record(3, quantity=1, **times), now=december).accepted == 1
    assert not close("2026-11", now=december)
    assert Charge.objects.get(closing=3, kind="gpu").usage_quantity == 224 * 3_600_000_000


def test_late_usage_that_is_only_prepared_may_end_earlier(october: Path) -> None:
    """A hold from the 20th of October that the close of October did not know, ended after a day."""
    december = datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
    assert not close()
    held(3, until="2026-12-01T00:00:00Z", end_reason="completed")
    held(7, namespace="cv", until="2026-12-01T00:00:00Z", ended_at=None, end_reason=None)
    assert close_prepare(month="2026-11", now=december)
    times = {"started_at": "2026-10-20T00:00:00Z", "ended_at": "2026-10-21T00:00:00Z", "observed_until": None}
    told = allocation_record(7, namespace="cv", quantity=1, **times)
    assert ingest_allocations(told, now=december).accepted == 1
    assert not close("2026-11", now=december)
    charge = Charge.objects.get(closing=3, namespace="cv")
    assert (charge.correction, charge.charge_period, charge.usage_quantity) == (True, "2026-10", 24 * 3_600_000_000)


def test_a_month_that_something_holds_now_is_refused(prepared: Path) -> None:
    ingest_tokens({**token_record(7), "input_tokens": -1}, now=LATER)  # of October by its own time, in quarantine
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-10", actor="ops", now=LATER)
    assert [item.kind for item in refused.value.report.blocking] == ["quarantine"]
    assert refused.value.report.gpu_seconds["charged"]  # summed, for whoever is refused
    assert (Invoice.objects.count(), BillingPeriod.objects.get().status) == (0, "open")
    item = refused.value.report.blocking[0]
    period = BillingPeriod.objects.get()
    exception_waive(period=period, kind=item.kind, subject=item.subject, reason="not ours", actor="fin", now=LATER)
    assert close()


@pytest.mark.parametrize("again", [False, True])
def test_a_month_with_a_meter_is_closed_by_its_sums(prepared: Path, again: bool) -> None:
    meter_reading_put(month="2026-10", cluster="hq-1", metered="1", shared="0", source="main", actor="ops", now=LATER)
    assert not (again and close_prepare(month="2026-10", now=LATER))
    assert not close()


@pytest.mark.parametrize("what", ["unowned", "unpriced"])
def test_usage_that_cannot_be_billed_is_not_prepared(october: Path, what: str) -> None:
    changed = {"unowned": {"namespace": "nobodys"}, "unpriced": {"accelerator": "NVIDIA-B300"}}[what]
    ingest_allocations(allocation_record(6, **changed), now=LATER)
    assert not close_prepare(month="2026-10", now=OVER)
    assert (ClosedWindow.objects.count(), Charge.objects.count(), Invoice.everything.count()) == (0, 0, 0)


def test_a_month_that_is_not_over_is_not_prepared(october: Path) -> None:
    assert not close_prepare(month="2026-10", now=OVER - timedelta(days=3))
    assert ClosedWindow.objects.count() == 0


# When


def test_the_scheduler_prepares_the_first_large_month_that_is_over(october: Path, settings: Any) -> None:
    assert not closes_prepare(now=OVER)  # nobody has assessed it
    settings.CACHE_STATEMENTS_ABOVE_LINES = 3
    month_assess(month="2026-10", now=OVER)
    assert MonthPreview.objects.get().lines >= 3
    assert not closes_prepare(now=OVER)  # the first period settles zone and currency: that is a person's to do
    assert not BillingPeriod.objects.exists()
    period_open(month="2026-09")
    assert not closes_prepare(now=OVER - timedelta(hours=12))
    assert closes_prepare(now=OVER)
    assert standing(period_open(month="2026-10"))
    assert not closes_prepare(now=OVER + timedelta(days=1))  # it stands
    held(4)
    assert not closes_prepare(now=OVER + timedelta(minutes=14))
    assert closes_prepare(now=OVER + timedelta(minutes=16))
    held(5)
    assert not closes_prepare(now=OVER + timedelta(minutes=32))  # twice as long
    assert closes_prepare(now=OVER + timedelta(minutes=47))
    assert list(ClosedWindow.objects.order_by("ordinal").values_list("prepared", flat=True)) == [True, True, True]
    assert set(Charge.objects.values_list("closing", flat=True)) == {3}
    assert close()
    assert Invoice.objects.get(team__code="nlp").sums.gpu == Decimal("3049.62")  # 209.62, 280 hours, 2 and 2 hours
    assert not closes_prepare(now=OVER + timedelta(days=2))


def test_what_was_prepared_of_a_month_that_was_closed_otherwise_is_removed(prepared: Path) -> None:
    held(4)
    assert not close()
    assert (Invoice.everything.filter(period=None).count(), PreparedClose.objects.count()) == (2, 1)
    closes_prepare(now=LATER)
    assert (Invoice.everything.filter(period=None).count(), PreparedClose.objects.count()) == (0, 0)
    assert set(Charge.objects.values_list("closing", flat=True)) == {2}
    assert InvoiceLine.objects.count() == InvoiceLine.objects.filter(invoice__period__month="2026-10").count()


def test_a_month_is_opened_again_beside_the_prepared_close_of_the_next(october: Path) -> None:
    house(october, billing={**SET_UP["billing"], "reopening": "two-persons"})
    person("lin", "finance")
    assert close_prepare(month="2026-10", now=OVER)
    assert close()
    held(3, until="2026-11-02T00:00:00Z", end_reason="completed")
    ingest_tokens(token_record(5, time="2026-11-12T00:00:00Z"), now=datetime(2026, 12, 1, tzinfo=UTC))
    assert close_prepare(month="2026-11", now=datetime(2026, 12, 1, 0, 5, tzinfo=UTC))
    asked = reopening_request(month="2026-10", reason="more came", actor="lin", now=LATER)
    reopening_approve(reopening_id=asked.pk, actor="fin", now=LATER)
    assert standing(period_open(month="2026-11")) is None  # its close would bill nothing late now
    assert not close()
    assert Invoice.objects.exclude(status="void").count() == 2


# What the database says itself


def refused(statement: str, why: str) -> None:
    with pytest.raises(DatabaseError, match=why), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_database_lets_only_the_last_prepared_close_count(prepared: Path) -> None:
    adopt = "UPDATE usage_closedwindow SET prepared = false, withdrawn_at = NULL WHERE ordinal = 1"
    refused("UPDATE usage_closedwindow SET prepared = false WHERE ordinal = 1", "stays as it was")
    refused("UPDATE usage_closedwindow SET withdrawn_at = NULL WHERE ordinal = 1", "stays as it was")
    with transaction.atomic():
        held(3, until="2026-10-20T01:00:00Z", end_reason="completed")
        assert ClosedWindow.objects.get().spoiled
        refused(adopt, "stays as it was")
        refused("UPDATE usage_closedwindow SET spoiled = false", "stays as it was")
        transaction.set_rollback(True)
    with transaction.atomic():
        ClosedWindow.objects.create(ordinal=2, start=OVER, end=LATER)
        refused(adopt, "stays as it was")
        refused("UPDATE usage_closedwindow SET prepared = true, withdrawn_at = now() WHERE ordinal = 2", "stays as it was")
        transaction.set_rollback(True)
    assert close()
    refused("UPDATE usage_closedwindow SET prepared = true, withdrawn_at = now()", "stays as it was")


def test_the_database_removes_charges_of_no_close_that_counts_or_ever_did(prepared: Path) -> None:
    removes = [f"DELETE FROM rating_{name}" for name in ("charge", "idleshare", "poolcapacity", "pooltime")]
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in removes:
            cursor.execute(statement)
            assert cursor.rowcount > 0
        transaction.set_rollback(True)
    refused("UPDATE rating_charge SET unit_price = 0", "a charge is corrected by another one")
    assert close()
    for statement in removes:
        refused(statement, "a charge is corrected by another one|what a close saw of its pools never changes")


def test_a_draft_of_no_month_is_never_issued(prepared: Path) -> None:
    pk = Invoice.everything.earliest("id").pk
    refused(
        f"""UPDATE invoicing_invoice SET status = 'issued', number = 'X-1', sha256 = 'x', document = 'x', issued_at = now()
            WHERE id = {pk}""", "of_a_month_or_prepared",
    )  # fmt: skip
    refused(f"UPDATE invoicing_invoice SET prepared_id = NULL WHERE id = {pk}", "of_a_month_or_prepared")
    assert invoices_issue(month="2026-10", actor="ops", now=LATER) == 0


# Nothing is read that is not asked about


BY_EPOCH = {
    "usage_allocationspan", "usage_gpuallocation", "usage_allocationend", "usage_efficiencysample", "usage_closedwindow",
    "token_usage_day", "token_usage_hour", "token_event", "token_dimension", "usage_nodecapacity",
}  # fmt: skip
"""Usage: what of it a close sees is said by the epoch, and of capacity by what it kept of it."""
COUNTED = {"usage_acceptedrows"}
"""Of the check that nobody has changed usage past the services: it says nothing of what a close comes to."""
OF_THE_CLOSE = {"rating_poolcapacity", "invoicing_preparedclose", "invoicing_billingperiod"}


def test_every_table_that_a_close_is_made_of_is_compared(october: Path) -> None:
    """Of all statements between the cut and the end, apart from those that write."""
    measured("0.60")
    read: set[str] = set()

    def noted(run: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = sql.decode() if isinstance(sql, bytes) else str(sql)
        names = re.findall(r'(?:\bFROM|\bJOIN|,)\s+"?([a-z]+_[a-z_]+)"?', text)
        if "SELECT" in text:
            read.update(names)
        return run(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND c.relkind IN ('r', 'v', 'p')"
        )
        tables = {row[0] for row in cursor.fetchall()}
    with pytest.MonkeyPatch.context() as patch, connection.execute_wrapper(noted):
        found = SimpleNamespace(report=SimpleNamespace(closable=True))  # a look that reads nothing
        patch.setattr("billing.closing.services.preparing.precheck", lambda *_, **__: found)
        patch.setattr("billing.closing.services.preparing._drop", lambda _: True)
        patch.setattr("billing.closing.services.preparing.made_of", lambda _: "x" * 64)
        patch.setattr("billing.closing.services.preparing.requires_full_rating", lambda _: False)
        assert close_prepare(month="2026-10", now=OVER)
    compared = {model._meta.db_table for model in FACTS}
    assert {"tenancy_team", "rates_gpuprice", "invoicing_billingmode", "usage_allocationspan", "token_event"} <= read
    assert (read & tables) - compared - BY_EPOCH - COUNTED - OF_THE_CLOSE == set()


# Killed anywhere


@pytest.fixture
def committed(transactional_db: None, tmp_path: Path) -> None:
    """Six teams, of which the n-th held n devices for an hour of October, at 10 an hour."""
    codes = [f"t{number}" for number in range(1, 7)]
    apply(
        tmp_path, platform=None, consumers=None, price_versions=PRICES,
        teams=[{"code": code, "name": code.title()} for code in codes],
        ownership=[{"cluster": "hq-1", "namespace": code, "team": code, "valid_from": "2026-01-01"} for code in codes],
    )  # fmt: skip
    for number, code in enumerate(codes, start=1):
        held(number, hours=1, quantity=number, namespace=code)


def lived(work: Callable[[], Any], statement: int, *, executed: bool) -> bool:
    """Whether a fork that kills itself at a statement was done with its work before."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        with connection.execute_wrapper(die_at(statement, executed=executed)):
            work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -9)
    return status == 0


def whole() -> tuple[str, int]:
    """The status of October and how many invoices it has: all or none, by the charges of its close alone."""
    period = BillingPeriod.objects.filter(month="2026-10").first()
    if period is None or period.ordinal is None:
        assert not Invoice.objects.exists()
        return "open", 0
    charged = Charge.objects.filter(closing=period.ordinal).order_by("team").values_list("team", flat=True)
    assert list(charged) == [f"t{number}" for number in range(1, 7)]
    assert sum(Invoice.objects.values_list("total", flat=True)) == 210
    assert ClosedWindow.objects.get(ordinal=period.ordinal).withdrawn_at is None
    return period.status, Invoice.objects.count()


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_whoever_dies_preparing_leaves_nothing_that_is_adopted(committed: None, executed: bool) -> None:
    statement = 1
    while not lived(lambda: close_prepare(month="2026-10", now=OVER), statement, executed=executed):
        assert whole() == ("open", 0)
        left = PreparedClose.objects.filter(ready=True).first()
        assert left is None or (Invoice.everything.count(), Charge.objects.filter(closing=left.ordinal).count()) == (6, 6)
        statement += 1
    assert statement > 40
    assert set(Charge.objects.values_list("closing", flat=True)) == {ClosedWindow.objects.latest("ordinal").ordinal}
    assert close()
    assert whole() == ("closed", 6)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_whoever_dies_adopting_has_closed_the_month_or_has_not(committed: None, executed: bool) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    statement, seen = 1, set()
    while not lived(lambda: period_close(month="2026-10", actor="ops", now=LATER), statement, executed=executed):
        seen.add(whole())
        statement += 1
        if ("closed", 6) in seen:
            break
    assert statement > 10
    assert seen <= {("open", 0), ("closed", 6)}
    assert whole() == ("closed", 6)
    assert (Charge.objects.count(), ClosedWindow.objects.count(), PreparedClose.objects.count()) == (6, 1, 0)
    assert AuditEntry.objects.filter(action="period_close").count() == 1
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_usage_that_arrives_while_a_prepared_month_is_closed_is_billed_in_exactly_one_close(committed: None) -> None:
    """Writers never pause. Whether or not the close is adopted: nothing is billed twice, and nothing never."""
    assert close_prepare(month="2026-10", now=OVER)
    start, errors = threading.Barrier(4), list[BaseException]()

    def write(writer: int) -> None:
        try:
            start.wait(timeout=30)
            for number in range(25):
                held(1000 * (writer + 1) + number, hours=1, namespace="t2")
        except Exception as error:  # noqa: BLE001 - handed to the test
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    start.wait(timeout=30)
    close()
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 2, tzinfo=UTC))
    ordinals = BillingPeriod.objects.values_list("ordinal", flat=True)
    billed = Charge.objects.filter(closing__in=list(ordinals), namespace="t2").values_list("usage_quantity", flat=True)
    assert sum(billed) == 77 * 3_600_000_000
    assert all(proof.holds for month in ("2026-10", "2026-11") for proof in period_verify(month=month))


def adopted_beside(work: Callable[[], Any]) -> bool:
    """Whether a close adopted what is prepared, which began while a transaction with `work` was not committed."""
    written, go_on, adopted = threading.Event(), threading.Event(), list[bool]()

    def first() -> None:
        with transaction.atomic():
            work()
            written.set()
            go_on.wait(timeout=30)
        connections.close_all()

    def second() -> None:
        written.wait(timeout=30)
        adopted.append(close())
        connections.close_all()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    written.wait(timeout=30)
    while threads[1].is_alive() and not _somebody_waits_for_a_lock():
        threads[1].join(timeout=0.05)
    go_on.set()
    for thread in threads:
        thread.join(timeout=60)
    return adopted[0]


def _somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT EXISTS (SELECT 1 FROM pg_stat_activity
                              WHERE datname = current_database() AND wait_event_type = 'Lock')"""
        )
        return bool(cursor.fetchone()[0])


def test_usage_on_its_way_is_waited_for(committed: None) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    assert not adopted_beside(lambda: held(9, hours=1, namespace="t1"))
    assert Invoice.objects.get(team__code="t1").total == 20


def test_what_is_being_removed_is_not_adopted(committed: None) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    assert not adopted_beside(lambda: _drop(PreparedClose.objects.get()))
    assert (whole(), ClosedWindow.objects.count(), Charge.objects.count()) == (("closed", 6), 2, 6)


def test_what_was_adopted_is_not_removed(committed: None) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    stale = PreparedClose.objects.get()
    assert close()
    assert not _drop(stale)
    assert whole() == ("closed", 6)


def test_many_close_a_prepared_month_at_once_and_it_is_closed_once(committed: None) -> None:
    assert close_prepare(month="2026-10", now=OVER)
    connections.close_all()
    pids = []
    for number in range(12):
        pid = os.fork()
        if not pid:
            if number % 3 == 0:
                connection.execute_wrappers.append(die_at(4 + number, executed=bool(number % 2)))
            period_close(month="2026-10", actor="ops", now=LATER)
            os._exit(0)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert statuses.count(0) >= 8
    assert set(statuses) <= {0, -9}
    assert whole() == ("closed", 6)
    assert AuditEntry.objects.filter(action="period_close").count() == 1
