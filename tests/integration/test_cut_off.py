"""The cut-off of a month: usage comes in while the month is checked and billed, and none falls between.

What was rated for the check is what the close bills, unless something that it was rated from has changed by the cut-off.
"""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction

from billing.closing.close_check import CloseCheck, close_check
from billing.closing.services import closing
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, InvoiceSums
from billing.rating.models import Charge, EfficiencyVerdict, IdleShare, PoolCapacity, PoolTime
from billing.usage.models import NodeCapacity
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.efficiency import BANDS, job

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
LONG_ENOUGH = 60
CLOSING = "billing.closing.services.closing"


@pytest.fixture
def scenario(transactional_db: None, tmp_path: Path) -> Path:
    """nlp held 8 devices for 2:37:13 at 10.00: 209.62; really committed."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    return tmp_path


class Step:
    """A place in the close at which it waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        module, _, function = name.rpartition(".")
        self.reached, self.may_go = threading.Event(), threading.Event()
        self.real: Callable[..., Any] = getattr(__import__(module, fromlist=[function]), function)
        monkeypatch.setattr(name, self)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        found = self.real(*arguments, **named)
        if not self.reached.is_set():
            self.reached.set()
            assert self.may_go.wait(LONG_ENOUGH)
        return found


@pytest.fixture
def close_elsewhere() -> Iterator[Callable[[], threading.Thread]]:
    started: list[threading.Thread] = []

    def start() -> threading.Thread:
        def run() -> None:
            try:
                period_close(month="2026-10", actor="ops", now=OVER)
            finally:
                connections.close_all()

        started.append(threading.Thread(target=run))
        started[0].start()
        return started[0]

    yield start
    for thread in started:
        thread.join(LONG_ENOUGH)
        assert not thread.is_alive()


@pytest.fixture
def ratings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What rated a month: its check, or its close."""
    seen: list[str] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda **asked: (seen.append(name), real(**asked))[1]

    for name, module in (("check", "billing.closing.close_check"), ("close", CLOSING)):
        monkeypatch.setattr(f"{module}.rate_period", noting(name, __import__(module, fromlist=["_"]).rate_period))
    return seen


def after_the_check(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen, committed, between the check of a month and its cut-off."""
    real = close_check

    def check_then(*given: Any, **named: Any) -> CloseCheck:
        found = real(*given, **named)
        thread = threading.Thread(target=lambda: (happens(), connections.close_all()))
        thread.start()
        thread.join(LONG_ENOUGH)
        return found

    monkeypatch.setattr(f"{CLOSING}.close_check", check_then)


def offered(quantity: int) -> None:
    """So many devices for the 10th of October, UTC."""
    factories.ingest_capacity(
        cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=quantity,
        **{"from": "2026-10-10T00:00:00Z", "until": "2026-10-11T00:00:00Z"},
    )  # fmt: skip


def total(team: str) -> Decimal:
    return Invoice.objects.get(team__code=team).total


def test_a_month_is_rated_once(scenario: Path, ratings: list[str]) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    assert ratings == ["check"]
    assert total("nlp") == Decimal("209.62")
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_usage_is_taken_in_while_a_month_is_checked_and_is_billed_with_it(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, close_elsewhere: Callable[[], threading.Thread], ratings: list[str]
) -> None:
    step = Step(monkeypatch, "billing.closing.close_check.rate_period")
    thread = close_elsewhere()
    assert step.reached.wait(LONG_ENOUGH)
    ingest_allocations(allocation_record(2))  # would fail after ten seconds of waiting for a lock
    assert BillingPeriod.objects.get().status == "open"
    step.may_go.set()
    thread.join(LONG_ENOUGH)
    assert ratings == ["check", "close"]
    assert BillingPeriod.objects.get().status == "closed"
    assert total("nlp") == Decimal("419.24")  # 16 devices for 9,433 s at 10.00: 419.2444...


def test_usage_is_taken_in_while_a_month_is_billed_and_comes_with_the_next(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, close_elsewhere: Callable[[], threading.Thread]
) -> None:
    step = Step(monkeypatch, f"{CLOSING}.charges_write")
    thread = close_elsewhere()
    assert step.reached.wait(LONG_ENOUGH)
    ingest_allocations(allocation_record(2))
    assert BillingPeriod.objects.get().status == "closing"
    step.may_go.set()
    thread.join(LONG_ENOUGH)
    assert total("nlp") == Decimal("209.62")
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 1, 0, 5, tzinfo=UTC))
    assert Invoice.objects.get(period__month="2026-11").total == Decimal("209.62")


def test_usage_of_another_month_does_not_have_it_rated_again(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, ratings: list[str]
) -> None:
    november = {"started_at": "2026-11-01T00:00:00Z", "ended_at": None, "observed_until": "2026-11-01T00:04:00Z"}
    after_the_check(monkeypatch, lambda: ingest_allocations(allocation_record(2, **november)))
    period_close(month="2026-10", actor="ops", now=OVER)
    assert (ratings, total("nlp")) == (["check"], Decimal("209.62"))


@pytest.mark.parametrize(
    "late",
    [
        lambda: ingest_allocations(allocation_record(2, namespace="nobodys")),
        lambda: ingest_tokens(token_record(1, consumer="nobodys")),
    ],
    ids=["devices", "tokens"],
)
def test_usage_without_owner_that_comes_in_after_the_check_opens_the_month_again(
    scenario: Path, late: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        after_the_check(patch, late)
        with pytest.raises(CloseRefusedError) as refused:
            period_close(month="2026-10", actor="ops", now=OVER)
    assert [item.kind.partition("_")[0] for item in refused.value.report.blocking] == ["unowned"]
    assert BillingPeriod.objects.get().status == "open"
    assert not Invoice.objects.exists()
    owner = {**SET_UP["ownership"][0], "namespace": "nobodys"}
    consumer = {**SET_UP["consumers"][0], "consumer": "nobodys"}
    apply(scenario, ownership=[*SET_UP["ownership"], owner], consumers=[*SET_UP["consumers"], consumer])
    period_close(month="2026-10", actor="ops", now=OVER)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_an_allocation_reported_twice_after_the_check_still_blocks_the_month(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = allocation_record(2, pod_uid=allocation_record(1)["pod_uid"])
    after_the_check(monkeypatch, lambda: ingest_allocations(again))
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-10", actor="ops", now=OVER)
    assert [item.kind for item in refused.value.report.blocking] == ["overlap"]
    assert BillingPeriod.objects.get().close_seq is None


def test_an_owner_that_goes_after_the_check_still_blocks_the_month(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {**SET_UP["ownership"][0], "valid_until": "2026-02-01"}
    after_the_check(monkeypatch, lambda: apply(scenario, ownership=[ended, SET_UP["ownership"][1]]))
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-10", actor="ops", now=OVER)
    assert [item.kind for item in refused.value.report.blocking] == ["unowned_namespace"]
    assert BillingPeriod.objects.get().status == "open"


def test_nobody_reports_capacity_or_changes_a_price_between_the_last_look_and_the_cut_off(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared is what is frozen: 64 devices for a day are reported in between, and wait for the cut-off."""
    real, waited = closing.capacity_freeze, list[bool]()

    def freeze(**given: Any) -> None:
        thread = threading.Thread(target=lambda: (offered(64), connections.close_all()))
        thread.start()
        thread.join(1)
        waited.append(thread.is_alive())
        real(**given)
        started.append(thread)

    started: list[threading.Thread] = []
    monkeypatch.setattr(closing, "capacity_freeze", freeze)
    period_close(month="2026-10", actor="ops", now=OVER)
    started[0].join(LONG_ENOUGH)
    assert (waited, PoolCapacity.objects.count(), NodeCapacity.objects.count()) == ([True], 0, 1)


STORED = (Charge, EfficiencyVerdict, IdleShare, PoolCapacity, PoolTime, InvoiceLine, InvoiceSums)


def stored() -> dict[str, list[str]]:
    """All that a close wrote, but for ids and instants of writing."""
    rows = {
        model.__name__: sorted(
            json.dumps({k: v for k, v in row.items() if k not in ("id", "invoice_id")}, default=repr, sort_keys=True)
            for row in model._default_manager.values()
        )
        for model in STORED
    }
    drafts = Invoice.objects.order_by("team__code", "shadow").values_list("team__code", "shadow", "total", "draft")
    return rows | {"drafts": [json.dumps(row, default=str) for row in drafts]}


@pytest.fixture
def whole_month(transactional_db: None, tmp_path: Path) -> Path:
    """September closed; in October devices of two teams, tokens, a reward, a penalty, idle time that is billed, a new price
    list within an hour, and late usage of September.
    """
    versions = [
        {**SET_UP["price_versions"][0], "valid_from": "2026-01-01"},
        {**SET_UP["price_versions"][0], "name": "2026-10b", "valid_from": "2026-10-15T12:30:00+08:00"},
    ]
    rules = {
        "name": "idle", "valid_from": "2026-10-01T00:00:00+08:00",
        "idle": [{"cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "1.0000",
                  "method": "proportional"}],
    }  # fmt: skip
    policy = {**BANDS, "valid_from": "2026-01-01"}
    apply(tmp_path, price_versions=versions, efficiency_policies=[policy], allocation_policies=[rules])
    period_close(month="2026-09", actor="ops", now=datetime(2026, 10, 1, tzinfo=UTC))
    september = {"started_at": "2026-09-10T00:00:00Z", "ended_at": "2026-09-10T02:37:13Z", "observed_until": None}
    of_cv = allocation_record(2, namespace="cv", quantity=3)
    ingest_allocations(allocation_record(1), of_cv, allocation_record(3, **september))
    ingest_tokens(token_record(1), token_record(2, time="2026-10-15T12:30:00+08:00"))
    job(4, "0.55", "0.60")
    job(5, "0.05", "0.10")
    offered(64)
    return tmp_path


def test_a_month_comes_to_the_same_bytes_whether_it_is_rated_once_or_again(
    whole_month: Path, monkeypatch: pytest.MonkeyPatch, ratings: list[str]
) -> None:
    found = []
    for again in (False, True):
        with transaction.atomic():
            if again:
                monkeypatch.setattr(CloseCheck, "at_cut_off", lambda checked, *_, **__: (checked.report, None))
            period_close(month="2026-10", actor="ops", now=OVER)
            found.append(stored())
            transaction.set_rollback(True)
    assert ratings == ["check", "check", "close"]
    assert {kind for row in found[0]["Charge"] for kind in [json.loads(row)["kind"]]} == {
        "gpu", "tokens", "efficiency", "idle"
    }  # fmt: skip
    assert any(json.loads(row)["correction"] for row in found[0]["Charge"])
    assert all(found[0].values())
    assert found[0] == found[1]


class Died(BaseException):
    """A process that is no more: nobody catches it."""


def test_a_close_that_dies_at_any_of_its_statements_is_finished_with_the_same_bytes(whole_month: Path) -> None:
    with transaction.atomic():
        period_close(month="2026-10", actor="ops", now=OVER)
        undisturbed = stored()
        transaction.set_rollback(True)

    def dying_at(last: int) -> Callable[..., Any]:
        left = iter(range(last))

        def run(execute: Callable[..., Any], *statement: Any) -> Any:
            if next(left, None) is None:
                raise Died
            return execute(*statement)

        return run

    deaths, seen = 0, set[str]()
    while "closed" not in seen:
        try:
            with connection.execute_wrapper(dying_at(deaths)):
                period_close(month="2026-10", actor="ops", now=OVER)
        except Died:
            deaths += 1
            assert not Invoice.objects.filter(period__month="2026-10").exists()
        seen |= set(BillingPeriod.objects.filter(month="2026-10").values_list("status", flat=True))
    assert (deaths > 60, seen) == (True, {"open", "closing", "closed"})
    assert stored() == undisturbed
    assert all(proof.holds for proof in period_verify(month="2026-10"))
