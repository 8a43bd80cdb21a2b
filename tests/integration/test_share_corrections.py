"""A share that was thought known is corrected from an instant on, in what was reported and in what will be."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.tenancy.models import AuditEntry
from billing.usage.models import AllocationRevision, GpuAllocation, QuarantinedRecord, ShareCorrection
from billing.usage.queries import gpu_time
from billing.usage.scope import EpochFilter
from billing.usage.selectors import allocated_twice_by_pod
from billing.usage.services import DeclarationError, share_correct
from metering.intervals import Interval
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, person
from tests.factories.ingest import answer

pytestmark = pytest.mark.django_db
OCTOBER = Interval(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
NOON = datetime(2026, 10, 10, 12, tzinfo=UTC)
TENTH = Decimal("0.1")


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def one(
    number: int = 1, start: str = "10:00", end: str | None = None, seen: str = "11:00", **changed: Any
) -> dict[str, Any]:
    """A unit that a pod holds on 10 October, by hours of UTC; still held while `end` is None."""
    until = f"2026-10-10T{end or seen}:00Z"
    times = {"started_at": f"2026-10-10T{start}:00Z", "ended_at": until if end else None, "observed_until": until}
    return allocation_record(number, quantity=1, **{**times, "end_reason": "completed" if end else None, **changed})


def correct(at: datetime = NOON, fraction: Decimal = TENTH, **more: Any) -> int:
    given = {"cluster": "hq-1", "resource": "nvidia.com/gpu", "actor": "ops", "reason": "time-slicing by ten"}
    return share_correct(**{**given, **more}, device_fraction=fraction, valid_from=at)


def held() -> list[tuple[str, str, Decimal, str]]:
    """Start and end by hour, share and why it ended, of all allocations that held for some time."""
    return [
        (f"{row.started_at:%H:%M}", f"{row.ended_at:%H:%M}" if row.ended_at else "", row.device_fraction.normalize(),
         row.end_reason)
        for row in GpuAllocation.objects.order_by("pod_uid", "started_at", "allocation_id")
        if row.ended_at != row.started_at
    ]  # fmt: skip


def device_hours() -> Decimal:
    found = sum((row.device_us for row in gpu_time([OCTOBER], EpochFilter(before=9))), Decimal(0))
    return (found / 3_600_000_000).normalize()


CUT = "share of a claim changed"


@pytest.mark.parametrize("first", ["reported", "corrected"])
def test_a_pod_that_goes_on_is_parted_at_the_instant(first: str) -> None:
    """From 10 to 14: two hours of a card, and two of a tenth of it, in whatever order it becomes known."""
    if first == "corrected":
        correct()
    assert answer(ingest_allocations(one(seen="13:00")))[:3] == (1, 0, 0)
    if first == "reported":
        assert correct() == 1
    assert device_hours() == Decimal("2.1")
    assert answer(ingest_allocations(one(seen="13:30")))[:3] == (1, 0, 0)
    assert answer(ingest_allocations(one(end="14:00")))[:3] == (1, 0, 0)
    assert answer(ingest_allocations(one(end="14:00")))[:3] == (0, 1, 0)
    assert held() == [("10:00", "12:00", Decimal(1), CUT), ("12:00", "14:00", TENTH, "completed")]
    assert device_hours() == Decimal("2.2")
    assert QuarantinedRecord.objects.count() == 0
    assert allocated_twice_by_pod(OCTOBER) == []


@pytest.mark.parametrize("first", ["reported", "corrected"])
def test_one_that_began_after_the_instant_has_the_corrected_share_from_its_start(first: str) -> None:
    if first == "corrected":
        correct()
    ingest_allocations(one(start="12:30", end="13:30"))
    if first == "reported":
        assert correct() == 1
    ingest_allocations(one(start="12:30", end="13:30"))
    assert held() == [("12:30", "13:30", TENTH, "completed")]
    assert device_hours() == TENTH


def test_what_ended_before_the_instant_stays_as_it_was() -> None:
    ingest_allocations(one(end="12:00"), one(2, seen="12:00"))
    assert correct() == 0
    ingest_allocations(one(2, seen="12:30"))
    assert held() == [
        ("10:00", "12:00", Decimal(1), "completed"), ("10:00", "12:00", Decimal(1), CUT), ("12:00", "", TENTH, ""),
    ]  # fmt: skip


def test_only_its_resource_cluster_and_accelerator_are_corrected() -> None:
    ingest_allocations(
        one(1, end="14:00"), one(2, end="14:00", accelerator="NVIDIA-A100"), one(3, end="14:00", cluster="hq-2"),
        one(4, end="14:00", resource="nvidia.com/mig-1g.10gb"), one(5, end="14:00", device_fraction="0.1"),
    )  # fmt: skip
    assert correct(accelerator="NVIDIA-H800") == 1
    assert [row[3] for row in held()].count(CUT) == 1


def test_a_later_correction_takes_over_and_an_earlier_one_is_refused() -> None:
    """10 to 12 whole, 12 to 13 a tenth, 13 to 15 a half: 2 + 0.1 + 1."""
    ingest_allocations(one(seen="14:00"))
    correct()
    assert correct(NOON.replace(hour=13), Decimal("0.5")) == 1
    ingest_allocations(one(end="15:00"))
    assert [row[:3] for row in held()] == [
        ("10:00", "12:00", Decimal(1)), ("12:00", "13:00", TENTH), ("13:00", "15:00", Decimal("0.5")),
    ]  # fmt: skip
    assert device_hours() == Decimal("3.1")
    with pytest.raises(DeclarationError, match="was corrected from 2026-10-10T13:00:00"):
        correct(NOON.replace(hour=12, minute=30))
    assert [row.device_fraction.normalize() for row in ShareCorrection.objects.all()] == [TENTH, Decimal("0.5")]


def test_the_bill_has_what_was_held_at_each_share(tmp_path: Path) -> None:
    """2 GPU-hours and 2 of a tenth, at 10.00: 22.00."""
    ingest_allocations(one(end="14:00"))
    correct()
    period_close(month="2026-10", actor="ops", now=AFTER)
    assert Invoice.objects.get().total == Decimal("22.00")
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    with pytest.raises(DeclarationError, match="lies in a closed month"):
        correct(NOON.replace(day=20))


def test_a_pod_of_a_closed_month_is_corrected_from_its_end_on() -> None:
    running = {"ended_at": None, "end_reason": None, "observed_until": "2026-11-02T00:00:00Z"}
    ingest_allocations(allocation_record(2, quantity=1, started_at="2026-10-31T10:00:00Z", **running))
    period_close(month="2026-10", actor="ops", now=AFTER)
    end = datetime(2026, 10, 31, 16, tzinfo=UTC)  # midnight in Shanghai
    assert correct(end) == 1
    pieces = AllocationRevision.objects.order_by("start", "epoch").values_list("start", "until")
    assert sum((until - start).total_seconds() for start, until in pieces) == 38 * 3600
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_the_command_corrects_with_a_reason_and_lists_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    person("ada", "admin")
    ingest_allocations(one(end="14:00"))
    given = ["--declare", "hq-1", "nvidia.com/gpu", "--fraction", "0.1", "--from", "2026-10-10T12:00:00Z", "--by", "ada"]
    call_command("gpu_share", *given, "--reason", "ten pods a card")
    assert "corrected: hq-1/nvidia.com/gpu from 2026-10-10T12:00:00+00:00; 1 allocations changed" in capsys.readouterr().out
    call_command("gpu_share")
    assert "hq-1/nvidia.com/gpu: 0.1 from 2026-10-10T12:00:00+00:00 by " in capsys.readouterr().out
    (entry,) = AuditEntry.objects.filter(action="share_correct")
    assert (entry.detail["device_fraction"], entry.detail["allocations"]) == ("0.1", 1)


@pytest.mark.parametrize(("changed", "said"), [
    ({"reason": " "}, "a declaration needs a reason"), ({"fraction": Decimal(2)}, "device fraction 2 must be above 0"),
    ({"resource": ""}, "names a cluster and a resource"),
])  # fmt: skip
def test_a_correction_that_says_nothing_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        correct(**changed)
