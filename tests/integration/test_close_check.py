"""Whether a month can be closed; what is billed of it is the same however often it is cut."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.close_check import close_check
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.periods import period_open
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.efficiency import BANDS
from tests.factories.months import NOVEMBER_OVER
from tests.factories.usage import sample

pytestmark = pytest.mark.django_db

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)


def blocking(month: str = "2026-10", now: datetime = OVER) -> list[tuple[str, str, Decimal | None]]:
    checked = close_check(period_open(month=month), now=now)
    return [(item.kind, item.subject, item.amount) for item in checked.report.blocking]


@pytest.mark.parametrize(
    ("used", "found"),
    [
        (lambda: ingest_allocations(allocation_record(1, namespace="nobodys")),
         ("unowned_namespace", "hq-1/nobodys", Decimal("209.62"))),
        (lambda: ingest_allocations(allocation_record(1, accelerator="NVIDIA-B300")), ("unpriced", "NVIDIA-B300", None)),
        (lambda: ingest_tokens(token_record(1, consumer="nobodys")),
         ("unowned_consumer", "litellm-hq/nobodys", Decimal("0.00"))),
        (lambda: ingest_tokens(token_record(1, model="unknown")), ("unpriced", "unknown cache_read", None)),
    ],
    ids=["namespace", "accelerator", "consumer", "model"],
)  # fmt: skip
def test_what_has_no_owner_or_no_price_blocks_the_month_with_its_amount(
    tmp_path: Path, used: Any, found: tuple[Any, ...]
) -> None:
    apply(tmp_path)
    used()
    assert blocking()[0] == found


def test_tokens_of_the_hour_in_which_an_owner_ends_are_held_only_after_the_end(tmp_path: Path) -> None:
    ended = {**SET_UP["consumers"][0], "valid_until": "2026-10-15T12:30:00+08:00"}
    apply(tmp_path, consumers=[ended])
    ingest_tokens(token_record(1, time="2026-10-15T12:29:59+08:00"))
    assert blocking() == []
    ingest_tokens(token_record(2, time="2026-10-15T12:30:00+08:00"))
    assert [item[:2] for item in blocking()] == [("unowned_consumer", "litellm-hq/nlp-key-1")]


def test_a_class_of_tokens_without_a_price_blocks_the_month_only_where_it_was_used(tmp_path: Path) -> None:
    tokens = [{"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"}]
    apply(tmp_path, price_versions=[{**SET_UP["price_versions"][0], "tokens": tokens}])
    ingest_tokens(token_record(1))
    assert blocking() == []
    ingest_tokens(token_record(2, cache_creation_input_tokens=50))
    assert [item[:2] for item in blocking()] == [("unpriced", "llama-3-8b cache_creation")]


@pytest.mark.parametrize(
    ("late", "kind"),
    [
        (lambda: ingest_allocations(allocation_record(2, namespace="nobodys")), "unowned_namespace"),
        (lambda: ingest_tokens(token_record(1, consumer="nobodys")), "unowned_consumer"),
    ],
    ids=["devices", "tokens"],
)
def test_late_usage_of_a_closed_month_without_owner_holds_the_next_one(tmp_path: Path, late: Any, kind: str) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    period_close(month="2026-10", actor="ops", now=OVER)
    late()
    assert [item[0] for item in blocking("2026-11", NOVEMBER_OVER)] == [kind]


def test_a_month_whose_bill_would_not_be_all_that_was_held_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    monkeypatch.setattr("billing.closing.report.allocated_devices", lambda *_: Decimal(1))
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-10", actor="ops", now=OVER)
    assert not refused.value.report.closable
    assert BillingPeriod.objects.get().status == "open"
    assert not Invoice.objects.exists()


def hourly_prices() -> list[dict[str, Any]]:
    """From 0:00 UTC of the 10th on a price an hour: 1.00, 2.00, ... 20.00."""
    first = datetime(2026, 10, 10, tzinfo=UTC)
    return [SET_UP["price_versions"][0]] + [
        {"name": f"h{hour:02}", "valid_from": (first + timedelta(hours=hour)).isoformat(),
         "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": f"{hour + 1}.0000"}]}
        for hour in range(20)
    ]  # fmt: skip


def test_a_hold_is_billed_at_each_of_the_many_prices_that_it_lasts_through(tmp_path: Path) -> None:
    apply(tmp_path, price_versions=hourly_prices(), efficiency_policies=[BANDS])
    ingest_allocations(
        allocation_record(1, quantity=1, started_at="2026-10-10T00:00:00Z", ended_at="2026-10-10T20:00:00Z",
                          observed_until="2026-10-10T20:00:00Z")
    )  # fmt: skip
    sample("2026-10-10T00:00:00Z", "2026-10-10T20:00:00Z", "72000", "0.10", "0.10")
    period_close(month="2026-10", actor="ops", now=OVER)
    document = Invoice.objects.get().draft
    assert len(document["lines"]) == 40
    assert document["subtotals"] == [
        {"kind": "gpu", "amount": "210.00"},  # 1 + 2 + ... + 20
        {"kind": "efficiency", "amount": "42.00"},
    ]
    assert all(proof.holds for proof in period_verify(month="2026-10"))
