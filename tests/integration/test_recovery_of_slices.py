"""Recovery: a slice with one price on all cards counts for the pools of the cards that it was used on."""

from decimal import Decimal
from pathlib import Path

import pytest

from billing.portal.months import period_shown
from billing.portal.recovery import recovery_of
from billing.portal.statements import month_facets
from billing.tenancy.models import BillingSetup, Team
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations
from tests.factories.closing import close

pytestmark = pytest.mark.django_db
SLICE, SEVENTH = "nvidia.com/mig-1g.10gb", "0.142857142857"


@pytest.mark.parametrize(
    ("reason", "billed"), [("completed", {"NVIDIA-H800": "12.00", "NVIDIA-A100": "24.00"}),
                           ("preempted", {"NVIDIA-H800": "0.00", "NVIDIA-A100": "24.00"})]
)  # fmt: skip
def test_the_amount_of_a_slice_is_in_the_pools_of_its_cards(
    tmp_path: Path, reason: str, billed: dict[str, str]
) -> None:
    """21 slice-hours x 1.7143 = 36.0003; 7 of them on one card, which the platform carries if preempted, 14 on the other."""
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10"}, {"resource": SLICE, "price_per_slice_hour": "1.7143"}]
    apply(
        tmp_path, price_versions=[{**SET_UP["price_versions"][0], "gpu": gpu}],
        interruption_policies=[{"name": "sla", "valid_from": "2026-10-01", "preempted": "platform"}],
    )  # fmt: skip
    slices = {"resource": SLICE, "quantity": 1, "device_fraction": SEVENTH}
    for number, card, until, ended in ((1, "NVIDIA-H800", "07", reason), (2, "NVIDIA-A100", "14", "completed")):
        end = f"2026-10-10T{until}:00:00Z"
        ingest_allocations(
            allocation_record(number, accelerator=card, started_at="2026-10-10T00:00:00Z", ended_at=end, observed_until=end,
                              end_reason=ended, **slices)
        )  # fmt: skip
    for closed in (False, True):
        if closed:
            close()
        period = period_shown("2026-10", BillingSetup.objects.get())
        found = recovery_of(period, month_facets(period, Team.objects.all()))
        assert {pool.accelerator: str(pool.billed) for pool in found.pools} == billed
        assert (found.unpooled, found.billed) == (0, sum(map(Decimal, billed.values())))
