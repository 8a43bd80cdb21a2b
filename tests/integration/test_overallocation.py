"""More devices held than offered at an instant is reported, though the month as a whole has idle time. Computed by hand."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import Check, build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.rating.allocation import capacity_of
from billing.usage.overallocation import overallocations
from metering.intervals import Interval
from tests.factories import allocation_record, apply, ingest_allocations, ingest_capacity
from tests.factories.months import OCTOBER_OVER

pytestmark = pytest.mark.django_db

DAY = Interval(datetime(2026, 10, 10, tzinfo=UTC), datetime(2026, 10, 11, tzinfo=UTC))
H800 = ("hq-1", "NVIDIA-H800")


def offered(start: str, until: str, quantity: int = 8, **changed: Any) -> None:
    record = {"cluster": "hq-1", "node": f"n-{start}", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu",
              "quantity": quantity, "from": f"2026-10-10T{start}Z", "until": f"2026-10-10T{until}Z", **changed}  # fmt: skip
    ingest_capacity(**record)


def held(number: int, start: str, until: str, quantity: int = 8, **changed: Any) -> None:
    end = f"2026-10-10T{until}Z"
    times = {"started_at": f"2026-10-10T{start}Z", "ended_at": end, "observed_until": end}
    ingest_allocations(allocation_record(number, **{**times, "quantity": quantity, **changed}))


def beyond(window: Interval) -> dict[tuple[str, str], Decimal]:
    return {pool: over.beyond for pool, over in overallocations(window).items()}


def test_what_exceeds_the_nodes_for_a_while_is_reported_though_the_month_has_room(tmp_path: Path) -> None:
    """Eight cards; eight and four pods' devices from 10:00 to 11:30: four too many for 5,400 s."""
    apply(tmp_path)
    offered("00:00:00", "23:00:00")
    held(1, "09:00:00", "12:00:00")
    held(2, "10:00:00", "11:30:00", 4)
    assert beyond(DAY) == {H800: Decimal(4 * 5400)}
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    (found,) = [item for item in report.exceptions if item.kind == "over_capacity"]
    assert (found.subject, found.quantity, found.unit, found.blocks) == ("hq-1/NVIDIA-H800", 21_600, "gpu_seconds", True)
    assert report.gpu_seconds["idle"] == 8 * 23 * 3600 - 8 * 3 * 3600 - 4 * 5400
    quick = build_report(period_of("2026-10"), now=OCTOBER_OVER, thorough=False)
    assert [item.quantity for item in quick.blocking] == [21_600]


def test_the_reconciliation_with_capacity_fails_where_more_was_held_than_offered(tmp_path: Path) -> None:
    """Of 662,400 GPU-seconds that were offered 108,000 were held, 21,600 of them beyond the eight cards."""
    apply(tmp_path)
    offered("00:00:00", "23:00:00")
    held(1, "09:00:00", "12:00:00")
    assert (capacity_check().ok, capacity_check().detail) == (True, "662,400 GPU-seconds offered")
    held(2, "10:00:00", "11:30:00", 4)
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert (report.closable, report.adds_up) == (False, False)
    assert capacity_check().ok is False
    assert capacity_check().detail == "662,400 GPU-seconds offered; more was allocated than offered in hq-1/NVIDIA-H800"


def test_what_two_agents_report_of_one_node_is_offered_once(tmp_path: Path) -> None:
    """One agent reports the node from 00:00 to 10:00. Another, which waited for its lease since 04:00, reports it from then
    until 20:00. Eight cards were there for 20 hours, and twelve were held for the hour from 05:00.
    """
    apply(tmp_path)
    offered("00:00:00", "10:00:00", node="n-1")
    offered("04:00:00", "20:00:00", node="n-1")
    held(1, "05:00:00", "06:00:00")
    held(2, "05:00:00", "06:00:00", 4)
    assert capacity_of(DAY, None) == {H800: Decimal(8 * 20 * 3_600_000_000)}
    assert beyond(DAY) == {H800: Decimal(4 * 3600)}
    half = Interval(DAY.start, datetime(2026, 10, 10, 9, tzinfo=UTC))
    assert capacity_of(half, None) == {H800: Decimal(8 * 9 * 3_600_000_000)}


def close() -> None:
    period_close(month="2026-10", actor="fin", now=OCTOBER_OVER)


def test_five_allocations_at_once_on_a_node_of_one_device_block_the_close_until_somebody_answers(tmp_path: Path) -> None:
    """One device for a day; five times one hour of it at once: four hours too many."""
    apply(tmp_path)
    offered("00:00:00", "23:00:00", 1)
    for number in range(5):
        held(number, "09:00:00", "10:00:00", 1)
    with pytest.raises(CloseRefusedError) as refused:
        close()
    (found,) = refused.value.report.blocking
    assert (found.kind, found.subject, found.quantity) == ("over_capacity", "hq-1/NVIDIA-H800", 4 * 3600)
    exception_waive(period=period_open(month="2026-10"), kind="over_capacity", subject="hq-1/NVIDIA-H800",
                    reason="time slices without a label", actor="lin", now=OCTOBER_OVER)  # fmt: skip
    close()
    assert build_report(period_of("2026-10"), now=OCTOBER_OVER).status == "closed"


@pytest.mark.parametrize(("ends", "seconds", "blocks"), [("11:16:54", 66, False), ("11:16:53", 67, True)])
def test_a_device_that_fails_under_a_running_pod_for_a_thousandth_of_what_was_held_is_shown(
    tmp_path: Path, ends: str, seconds: int, blocks: bool
) -> None:
    """8 devices held for 8,280 s are 66,240 GPU-seconds: of them one is gone for 66 s or for 67 s at the end."""
    apply(tmp_path)
    offered("09:00:00", ends)
    offered(ends, "11:18:00", 7)
    held(1, "09:00:00", "11:18:00")
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    (found,) = [item for item in report.exceptions if item.kind == "over_capacity"]
    assert (found.quantity, found.blocks) == (seconds, blocks)


def test_capacity_that_is_unknown_for_a_part_of_the_month_blocks_nothing(tmp_path: Path) -> None:
    """8 devices were held for two hours and offered, as far as known, for one."""
    apply(tmp_path)
    offered("10:00:00", "11:00:00")
    held(1, "09:00:00", "11:00:00")
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    (found,) = [item for item in report.exceptions if item.kind == "over_capacity"]
    assert (found.quantity, found.blocks) == (8 * 3600, False)
    close()


def capacity_check() -> Check:
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    return next(check for check in report.checks if check.name == "charged + platform + idle = capacity")


def test_less_than_a_minute_is_the_difference_of_clocks() -> None:
    offered("00:00:00", "23:00:00")
    held(1, "09:00:00", "10:00:30")
    held(2, "10:00:00", "11:00:00")
    assert beyond(DAY) == {}
    held(3, "12:00:00", "12:00:50")
    held(4, "12:00:00", "12:00:40", 1)  # 40 s of 9, 10 s of 12, 10 s of 20: one stretch of a minute
    held(5, "12:00:40", "12:01:00", 4)
    held(6, "12:00:50", "12:01:00", 16)
    assert beyond(DAY) == {H800: Decimal(1 * 40 + 4 * 10 + 12 * 10)}


def test_time_without_known_capacity_and_other_products_are_left_out() -> None:
    offered("10:00:00", "12:00:00")
    held(1, "08:00:00", "11:00:00", 16)
    held(2, "08:00:00", "11:00:00", 16, accelerator="NVIDIA-H200")
    held(3, "08:00:00", "11:00:00", 16, cluster="hq-2")
    assert beyond(DAY) == {H800: Decimal(8 * 3600)}


def test_slices_are_counted_by_their_part_of_a_card() -> None:
    """Seven slices of a seventh, rounded to twelve decimals, are no more than the seven that are offered; eight are."""
    mig = {"resource": "nvidia.com/mig-1g.10gb"}
    offered("00:00:00", "23:00:00", 7, **mig)
    held(1, "09:00:00", "10:00:00", 7, device_fraction="0.142857142857", **mig)
    assert beyond(DAY) == {}
    held(2, "09:00:00", "10:00:00", 1, device_fraction="0.142857142857", **mig)
    assert beyond(DAY) == {H800: Decimal("514.2857142852")}
