"""A card that is cut by MIG is accounted for whole: what its slices hold, and what of it no slice can use."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from billing.closing.report import build_report
from billing.invoices.selectors import period_of
from billing.usage.services import Reporter, capacity_ingest
from metering.k8s.capacity import capacity_records, offers
from metering.k8s.description import Scope
from metering.k8s.objects import Node
from tests.factories import allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db

START, END = datetime(2026, 10, 10, tzinfo=UTC), datetime(2026, 10, 11, tzinfo=UTC)
AFTER = datetime(2026, 11, 1, 1, tzinfo=UTC)
SLICE = "nvidia.com/mig-1g.20gb"


def test_four_sevenths_of_a_card_are_held_and_three_are_idle(tmp_path: Path) -> None:
    """One card, 86,400 s: four slices of a seventh hold 49,371.43 GPU-seconds of it, and 37,028.57 are idle."""
    apply(tmp_path)
    units = {"nvidia.com/gpu": "0", SLICE: "4"}
    labels = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.product": "NVIDIA-H800",
              f"{SLICE}.product": "NVIDIA-H800-MIG-1g.20gb"}  # fmt: skip
    node = msgspec.convert({"metadata": {"name": "node-1", "uid": "n", "resourceVersion": "1", "labels": labels}, "spec": {},
                            "status": {"capacity": units, "allocatable": units, "conditions": []}}, Node)  # fmt: skip
    scope = Scope("hq-1")
    records = capacity_records(offers(node, START, scope).values(), END, None, scope)
    reporter = Reporter("tests", "usage/capacity")
    capacity_ingest(records=[(0, record, b"{}") for record in records], reporter=reporter, now=AFTER)
    held = {
        "resource": SLICE, "quantity": 1, "device_fraction": "0.142857142857", "started_at": "2026-10-10T00:00:00Z",
        "ended_at": "2026-10-11T00:00:00Z", "observed_until": "2026-10-11T00:00:00Z",
    }  # fmt: skip
    ingest_allocations(*(allocation_record(number, **held) for number in range(4)))
    found = build_report(period_of("2026-10"), now=AFTER).gpu_seconds
    assert {name: Decimal(value or 0).quantize(Decimal("0.01")) for name, value in found.items()} == {
        "charged": Decimal("49371.43"), "platform": 0, "unowned": 0, "unpriced": 0, "idle": Decimal("37028.57"),
        "capacity": 86_400,
    }  # fmt: skip
