"""The cut-off of a month: usage goes on coming in while the month is looked at and billed, and none falls between."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from billing.closing.services.closing import CloseRefusedError, period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.periods import period_open
from billing.usage.selectors import EpochFilter
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, token_record
from tests.factories import ingest_tokens as tokens

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
LONG_ENOUGH = 60


@pytest.fixture
def house(transactional_db: None, tmp_path: Path) -> Path:
    """nlp held 8 devices for 2:37:13 at 10.00: 209.62; really committed."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    return tmp_path


class Step:
    """A place in the close at which it waits until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        module, _, function = name.rpartition(".")
        self.reached, self.may_go = threading.Event(), threading.Event()
        self.real = self._function(module, function)
        monkeypatch.setattr(name, self)

    @staticmethod
    def _function(module: str, function: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(__import__(module, fromlist=[function]), function)
        return real

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


def total(team: str) -> Decimal:
    return Invoice.objects.get(team__code=team).total


def test_usage_is_taken_in_while_a_month_is_looked_at_and_is_billed_with_it(
    house: Path, monkeypatch: pytest.MonkeyPatch, close_elsewhere: Callable[[], threading.Thread]
) -> None:
    step = Step(monkeypatch, "billing.closing.precheck.usage_keys_used")
    closing = close_elsewhere()
    assert step.reached.wait(LONG_ENOUGH)
    ingest_allocations(allocation_record(2))  # would fail after ten seconds of waiting for a lock
    assert BillingPeriod.objects.get().status == "open"
    step.may_go.set()
    closing.join(LONG_ENOUGH)
    assert BillingPeriod.objects.get().status == "closed"
    assert total("nlp") == Decimal("419.24")  # 16 devices for 9,433 s at 10.00: 419.2444...


def test_usage_is_taken_in_while_a_month_is_billed_and_comes_with_the_next(
    house: Path, monkeypatch: pytest.MonkeyPatch, close_elsewhere: Callable[[], threading.Thread]
) -> None:
    step = Step(monkeypatch, "billing.closing.services.closing.rate_period")
    closing = close_elsewhere()
    assert step.reached.wait(LONG_ENOUGH)
    ingest_allocations(allocation_record(2))
    assert BillingPeriod.objects.get().status == "closing"
    step.may_go.set()
    closing.join(LONG_ENOUGH)
    assert total("nlp") == Decimal("209.62")
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 1, 0, 5, tzinfo=UTC))
    assert Invoice.objects.get(period__month="2026-11").total == Decimal("209.62")


@pytest.mark.parametrize(
    "late",
    [
        lambda: ingest_allocations(allocation_record(2, namespace="nobodys")),
        lambda: tokens(token_record(1, consumer="nobodys")),
    ],
    ids=["devices", "tokens"],
)
def test_usage_without_owner_that_comes_in_after_the_look_still_holds_the_month(
    house: Path, late: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from billing.closing import precheck

    real = precheck.usage_keys_used

    def look_then_receive(*given: Any) -> Any:
        found = real(*given)
        monkeypatch.setattr(precheck, "usage_keys_used", real)
        thread = threading.Thread(target=lambda: (late(), connections.close_all()))
        thread.start()
        thread.join(LONG_ENOUGH)
        return found

    monkeypatch.setattr(precheck, "usage_keys_used", look_then_receive)
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-10", actor="ops", now=OVER)
    assert [item.kind.partition("_")[0] for item in refused.value.report.blocking] == ["unowned"]
    assert BillingPeriod.objects.get().status == "open"


def test_usage_without_owner_that_slipped_through_the_cut_off_opens_the_month_again(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from billing.closing import precheck

    with monkeypatch.context() as patch:
        patch.setattr(precheck.ClosePrecheck, "still_holds", lambda looked, *_, **__: looked.report)
        period = period_open(month="2026-10")
        looked = precheck.precheck(period, now=OVER)
        ingest_allocations(allocation_record(2, namespace="nobodys"))
        patch.setattr("billing.closing.services.closing.precheck", lambda *_, **__: looked)
        with pytest.raises(CloseRefusedError) as refused:
            period_close(month="2026-10", actor="ops", now=OVER)
    assert [item.kind for item in refused.value.report.blocking] == ["unowned_namespace"]
    assert BillingPeriod.objects.get().status == "open"
    owner = {**SET_UP["ownership"][0], "namespace": "nobodys"}
    apply(house, ownership=[*SET_UP["ownership"], owner])
    period_close(month="2026-10", actor="ops", now=OVER)
    assert total("nlp") == Decimal("419.24")
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_a_hold_told_twice_after_the_look_still_holds_the_month(house: Path) -> None:
    from billing.closing import precheck

    period = period_open(month="2026-10")
    looked = precheck.precheck(period, now=OVER)
    ingest_allocations(allocation_record(2, pod_uid=allocation_record(1)["pod_uid"]))
    assert [item.kind for item in looked.still_holds(period, now=OVER).blocking] == ["overlap"]


def test_an_owner_that_goes_after_the_look_still_holds_the_month(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from billing.closing import precheck

    period, real = period_open(month="2026-10"), precheck.usage_keys_used
    ended = {**SET_UP["ownership"][0], "valid_until": "2026-02-01"}
    looked = precheck.precheck(period, now=OVER)
    assert looked.report.closable
    apply(house, ownership=[ended, SET_UP["ownership"][1]])
    assert real(looked.devices, looked.tokens, EpochFilter()) == looked.names
    assert [item.kind for item in looked.still_holds(period, now=OVER).blocking] == ["unowned_namespace"]
