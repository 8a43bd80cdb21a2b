"""Recovery: a slice with one price on all cards counts for the pools of the cards that it was used on."""

from decimal import Decimal
from pathlib import Path

import pytest

from billing.portal.months import period_shown
from billing.portal.recovery import recovery_of
from billing.portal.statements import month_facets
from billing.tenancy.models import BillingSetup, Team
from tests.factories import allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db
SEVENTH = "0.142857142857"


def test_the_amount_of_a_slice_is_in_the_pools_of_its_cards(tmp_path: Path) -> None:
    apply(tmp_path)
    slices = {"resource": "nvidia.com/mig-1g.10gb", "quantity": 1, "device_fraction": SEVENTH}
    for number, card, until in ((1, "NVIDIA-H800", "07"), (2, "NVIDIA-A100", "14")):
        end = f"2026-10-10T{until}:00:00Z"
        ingest_allocations(
            allocation_record(number, accelerator=card, started_at="2026-10-10T00:00:00Z", ended_at=end, observed_until=end,
                              **slices)
        )  # fmt: skip
    period = period_shown("2026-10", BillingSetup.objects.get())
    found = recovery_of(period, month_facets(period, Team.objects.all()))
    # 21 slice-hours x 1.7143 = 36.0003; 7 of them on one card, 14 on the other
    assert {pool.accelerator: pool.billed for pool in found.pools} == {
        "NVIDIA-H800": Decimal("12.00"), "NVIDIA-A100": Decimal("24.00")
    }  # fmt: skip
    assert found.unpooled == Decimal("0.00")
    assert found.billed == Decimal("36.00")
