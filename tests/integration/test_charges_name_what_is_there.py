"""The database takes no charge of a close or a team that is not there, and keeps the team of a charge."""

from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from billing.closing.services.closing import period_close
from billing.rating.models import Charge, EfficiencyVerdict
from billing.tenancy.models import Team
from tests.factories import AFTER, allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db


@pytest.fixture
def charge(tmp_path: Path) -> dict[str, Any]:
    """The columns of the one charge of a closed month."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    period_close(month="2026-10", actor="ops", now=AFTER)
    (row,) = Charge.objects.values()
    return {name: value for name, value in row.items() if name != "id"} | {"line_key": "another"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"close_seq": 2}, "rating_charge names close 2 which is not there"),
        ({"team": "gone"}, "rating_charge names team gone which is not there"),
    ],
)
def test_a_charge_that_names_what_is_not_there_is_refused(
    charge: dict[str, Any], changed: dict[str, Any], said: str
) -> None:
    with transaction.atomic():
        Charge.objects.create(**charge)
    with pytest.raises(IntegrityError, match=said), transaction.atomic():
        Charge.objects.create(**charge | {"line_key": "a third"} | changed)


def test_a_verdict_names_a_close_and_a_team(charge: dict[str, Any]) -> None:
    verdict = {"close_seq": 1, "team": "gone", "gpu_seconds": 1, "minutes": 1, "coverage": 1, "multiplier": 1}
    with pytest.raises(IntegrityError, match="rating_efficiencyverdict names team gone"), transaction.atomic():
        EfficiencyVerdict.objects.create(**verdict)


def test_a_team_with_charges_is_neither_deleted_nor_given_another_code(charge: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=r"team \S+ has charges and stays"), transaction.atomic():
        Team.objects.filter(code=charge["team"])._raw_delete("default")
    with pytest.raises(IntegrityError, match=r"team \S+ has charges and stays"), transaction.atomic():
        Team.objects.filter(code=charge["team"]).update(code="new")
    Team.objects.filter(code=charge["team"]).update(name="Renamed")
