"""The database takes charges while their month is being closed, of teams that are there; others are found and named."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from billing.closing.services.closing import period_close
from billing.rating.models import Charge, EfficiencyVerdict
from billing.tenancy.models import Team
from tests.factories import AFTER, allocation_record, apply, ingest_allocations
from tests.factories.closing import close_cut_off, sql
from tests.factories.commands import Manage
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db


@pytest.fixture
def charge(tmp_path: Path) -> dict[str, Any]:
    """The columns of the one charge of a closed month."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    period_close(month="2026-10", actor="ops", now=AFTER)
    (row,) = Charge.objects.values()
    return {name: value for name, value in row.items() if name != "id"} | {"line_key": "another"}


@pytest.mark.parametrize("close_seq", [1, 2])
def test_a_charge_of_a_close_that_is_through_or_not_there_is_refused(charge: dict[str, Any], close_seq: int) -> None:
    said = f"rating_charge names close {close_seq} which bills nothing now"
    with pytest.raises(IntegrityError, match=said), transaction.atomic():
        Charge.objects.create(**charge | {"close_seq": close_seq})


EVIDENCE = {
    "rating_poolcapacity": "(close_seq, cluster, accelerator, capacity_us) VALUES ({}, 'x', 'x', 1)",
    "rating_idleshare": "(close_seq, team, cluster, accelerator, pool_idle_us, idle_us) VALUES ({}, 'nlp', 'x', 'x', 1, 1)",
    "rating_pooltime": """(close_seq, cluster, accelerator, charged, platform, unowned, unpriced)
                          VALUES ({}, 'x', 'x', 1, 1, 1, 1)""",
}


@pytest.mark.parametrize("table", EVIDENCE)
def test_what_a_close_saw_is_not_added_to_once_it_is_through(charge: dict[str, Any], table: str) -> None:
    with pytest.raises(DatabaseError, match=f"{table} names close 1 which bills nothing now"):
        sql(f"INSERT INTO {table} {EVIDENCE[table].format(1)}")


def test_a_charge_and_a_verdict_name_a_team_that_is_there(charge: dict[str, Any]) -> None:
    close_cut_off("2026-11", AFTER + timedelta(days=31))
    verdict = {"team": "gone", "gpu_seconds": 1, "minutes": 1, "coverage": 1, "multiplier": 1}
    with pytest.raises(IntegrityError, match="rating_efficiencyverdict names team gone which is not"), transaction.atomic():
        EfficiencyVerdict.objects.create(close_seq=2, **verdict)
    with pytest.raises(IntegrityError, match="rating_charge names team gone which is not there"), transaction.atomic():
        Charge.objects.create(**charge | {"close_seq": 2, "team": "gone"})


GPU = "charge nlp gpu NVIDIA-H800 hq-1 nlp-train 2026-10"
DUE = f"{GPU}: 75464000000 at 10 expected, found"
TAMPERS = {
    "UPDATE rating_charge SET usage_quantity = usage_quantity + 1": f"{DUE} 75464000001 at 10",
    "UPDATE rating_charge SET unit_price = 11": f"{DUE} 75464000000 at 11",
    "UPDATE rating_charge SET line_key = 'x'": f"{DUE} 0 at 0",
    "UPDATE rating_charge SET consumer = 'x', line_key = 'x'": f"{DUE} none",
    "DELETE FROM rating_charge": f"{DUE} none",
    """INSERT INTO rating_charge (close_seq, line_key, team, platform, correction, kind, cluster, namespace, consumer,
        accelerator, sku, token_class, charge_period, unit, price_version, policy, reason, usage_quantity, unit_price)
       SELECT close_seq, 'y', 'cv', platform, correction, kind, cluster, namespace, consumer, accelerator, sku, token_class,
        charge_period, unit, price_version, policy, reason, 1, 5 FROM rating_charge""": (
        "charge cv gpu NVIDIA-H800 hq-1 nlp-train 2026-10: none expected, found 0 at 0"
    ),
}


@pytest.mark.parametrize("tamper", TAMPERS)
def test_a_charge_that_a_superuser_changed_is_named(
    charge: dict[str, Any], tamper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Manage(capsys)("period_verify", "2026-10").status == 0
    assert rewrite(tamper) == 1
    done = Manage(capsys)("period_verify", "2026-10")
    assert done.status == 3
    assert f"FAIL the usage of 2026-10: {TAMPERS[tamper]}\n" in done.out


def test_a_team_with_charges_is_neither_deleted_nor_given_another_code(charge: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=r"team \S+ has charges and stays"), transaction.atomic():
        Team.objects.filter(code=charge["team"])._raw_delete("default")
    with pytest.raises(IntegrityError, match=r"team \S+ has charges and stays"), transaction.atomic():
        Team.objects.filter(code=charge["team"]).update(code="new")
    Team.objects.filter(code=charge["team"]).update(name="Renamed")
