"""A billed October as the boards of the portal show it."""

from datetime import datetime
from pathlib import Path

import pytest

from billing.closing.services.showback import billing_mode_put
from billing.portal.board import Board
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.statements import month_facets
from billing.tenancy.models import BillingSetup, Team
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import OCTOBER_OVER, people
from tests.factories.usage import POLICY, hold, sample


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """Once for the tests of a module that follow the first which asks for it.

    nlp owes 209.62 for devices and 10.80 for tokens; cv is only shown 60.00 and 12.00 more, for HFU 0.15."""
    people()
    apply(for_all_tests, efficiency_policies=[POLICY])
    billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="first", actor="fin", now=OCTOBER_OVER)
    ingest_allocations(
        allocation_record(1, workload={"kind": "PyTorchJob", "name": "pretrain"}, queue="gold"),
        hold(2, "2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", quantity=2, namespace="cv"),
    )
    sample("2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", "21600", "0.10", "0.15", uid="uid-2")
    ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))


def board(month: str, now: datetime, **filters: str) -> Board:
    setup = BillingSetup.objects.get()
    period = period_shown(month, setup)
    teams = Team.objects.filter(is_group=False, code="nlp")
    return Board(period, setup, teams, Filters(**filters), month_facets(period, teams), now)


SHEET = {
    "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": 8, "server_price": "0", "gpu_price": "43800",
    "network_price_per_port": "0", "ports_per_gpu": 0, "gpus_per_rack": 8, "cluster_gpus": 8, "life_years": 1,
    "gpu_power_kw": "0.7", "server_other_power_kw": "0", "pue": "1", "electricity_price_per_kwh": "0",
    "rack_rent_per_month": "0", "bandwidth_per_month": "0", "labour_per_month": "0", "software_per_month": "0",
    "markup": "0.6", "sold_share": "0.5",
}  # fmt: skip
