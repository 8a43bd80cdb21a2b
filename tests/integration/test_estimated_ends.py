"""What was not reported exactly is on the report: estimated ends with bounds; a product that nobody knows blocks the
close."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from billing.closing.exception_kinds import kind_of
from billing.closing.report import Report, build_report
from billing.invoices.selectors import period_of
from billing.usage.reconciliation import estimated_ends
from metering.intervals import Interval
from tests.factories import SHANGHAI_OCTOBER, allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def lost(number: int, earliest: str, latest: str, **changed: Any) -> dict[str, Any]:
    """A hold that was gone from a list at `latest`."""
    return allocation_record(
        number, ended_at=latest, observed_until=latest, end_reason="unknown", end_estimated=True,
        end_rule="absent from list", end_earliest=earliest, end_latest=latest, **changed,
    )  # fmt: skip


def october() -> Report:
    return build_report(period_of("2026-10"), now=datetime(2026, 11, 3, tzinfo=UTC))


def reported(kind: str) -> list[tuple[str, int, str, bool]]:
    return [
        (item.subject, int(item.quantity), item.unit, item.blocks) for item in october().exceptions if item.kind == kind
    ]


def test_an_estimated_end_is_listed_with_its_bounds_and_holds_nothing() -> None:
    """Eight devices whose end lies within 600 s: at most 4,800 device-seconds are in doubt. Times are Shanghai's."""
    ingest_allocations(allocation_record(1), lost(2, "2026-10-10T02:00:00Z", "2026-10-10T02:10:00Z"))
    assert reported("estimated_end") == [("hq-1/nlp-train/train-2", 4_800, "gpu_seconds", False)]
    report = october()
    (item,) = [item for item in report.exceptions if item.kind == "estimated_end"]
    assert item.action == (
        "ended between 2026-10-10 10:00:00 and 2026-10-10 10:10:00 (absent from list); billed until 2026-10-10 10:10:00"
    )
    assert report.closable
    assert kind_of("estimated_end").label == "End estimated"


def test_only_what_lies_in_the_month_counts_and_what_is_certain_is_not_listed() -> None:
    """The month of Shanghai ends at 16:00 UTC on the 31st. Halves of a device count half."""
    ingest_allocations(
        lost(1, "2026-10-31T15:50:00Z", "2026-10-31T16:30:00Z", quantity=2),
        lost(2, "2026-10-31T15:59:00Z", "2026-10-31T16:00:00Z", quantity=1, device_fraction="0.5"),
        lost(3, "2026-10-10T02:37:13Z", "2026-10-10T02:37:13Z"),
        lost(4, "2026-10-31T16:00:00Z", "2026-10-31T16:30:00Z", quantity=3),
    )
    assert reported("estimated_end") == [
        ("hq-1/nlp-train/train-1", 2 * 600, "gpu_seconds", False),
        ("hq-1/nlp-train/train-2", 30, "gpu_seconds", False),
    ]


def test_more_than_can_be_read_are_summed_by_cluster() -> None:
    ends = [(1, "02:10:00"), (2, "02:05:00"), (3, "02:01:00"), (4, "02:00:30")]
    ingest_allocations(*(lost(n, "2026-10-10T02:00:00Z", f"2026-10-10T{at}Z", quantity=1) for n, at in ends))
    found = estimated_ends(Interval(*SHANGHAI_OCTOBER), most=2)
    assert [(end.pod, end.holds, int(end.device_us)) for end in found] == [
        ("nlp-train/train-1", 1, 600_000_000), ("nlp-train/train-2", 1, 300_000_000), (None, 2, 90_000_000),
    ]  # fmt: skip
    assert (found[2].earliest, found[2].latest) == (
        datetime(2026, 10, 10, 2, tzinfo=UTC), datetime(2026, 10, 10, 2, 1, tzinfo=UTC),
    )  # fmt: skip


def test_an_end_that_is_reported_later_takes_the_estimate_off_the_list() -> None:
    ingest_allocations(lost(1, "2026-10-10T02:00:00Z", "2026-10-10T02:40:00Z"))
    assert len(reported("estimated_end")) == 1
    exact = {"ended_at": "2026-10-10T02:30:00Z", "observed_until": "2026-10-10T02:30:00Z"}
    ingest_allocations(allocation_record(1, **exact, end_rule="finishedAt"))
    assert reported("estimated_end") == []


def test_a_product_that_nobody_knows_blocks_the_close() -> None:
    """A pod on a node that was never seen: eight devices for 9,433 s, without a price until somebody gives one."""
    ingest_allocations(allocation_record(1, accelerator="unknown"))
    (item,) = october().blocking
    assert (item.kind, item.subject, int(item.quantity), item.unit) == ("unpriced", "unknown", 8 * 9_433, "gpu_seconds")
    assert not october().closable
