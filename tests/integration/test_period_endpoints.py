"""The API takes meter readings and shows the teams that a close blocks, as the command and the page do."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from billing.closing.models import BlockedTeam, MeterReading
from billing.invoices.models import BillingPeriod
from billing.tenancy.models import AuditEntry
from tests.factories import AFTER, apply
from tests.factories.api import program

pytestmark = pytest.mark.django_db
READINGS, HELD = "/api/v1/periods/2026-10/meter-readings", "/api/v1/periods/2026-10/held-teams"
READING = {"cluster": "hq-1", "metered_kwh": "12345.6", "shared_kwh": "45.6", "source": "PDU export"}


def report_reading(caller: Client, **changed: Any) -> Any:
    return caller.post(READINGS, {**READING, **changed}, content_type="application/json")


def test_a_reading_is_reported_and_read_again(tmp_path: Path) -> None:
    apply(tmp_path)
    answer = report_reading(program("usage:correct"))
    assert answer.status_code == 201
    reading = MeterReading.objects.get()
    assert (reading.cluster, reading.metered_kwh, reading.shared_kwh) == ("hq-1", Decimal("12345.6"), Decimal("45.6"))
    assert AuditEntry.objects.get(action="meter_reading_put").actor == reading.told_by
    report_reading(program("usage:correct"), metered_kwh="13000", shared_kwh="0")
    listed = program("usage:read").get(READINGS).json()["results"]
    assert [(row["metered_kwh"], row["shared_kwh"]) for row in listed] == [("12345.600", "45.600"), ("13000.000", "0.000")]


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"metered_kwh": "-1"}, "metered_kwh '-1'"),
        ({"metered_kwh": "1.2345"}, "at most 3 decimals"),
        ({"shared_kwh": "20000"}, "a part of it"),
        ({"cluster": ""}, "cluster"),
    ],
)
def test_a_reading_that_cannot_be_is_refused_by_field(tmp_path: Path, changed: dict[str, str], reported: str) -> None:
    apply(tmp_path)
    answer = report_reading(program("usage:correct"), **changed)
    assert (answer.status_code, reported in answer.content.decode()) == (400, True)
    assert not MeterReading.objects.exists()


def test_what_is_no_month_is_refused(tmp_path: Path) -> None:
    apply(tmp_path)
    endpoint = READINGS.replace("2026-10", "2026-13")
    answer = program("usage:correct").post(endpoint, READING, content_type="application/json")
    assert (answer.status_code, "2026-13" in answer.content.decode()) == (400, True)
    assert program("usage:read").get(endpoint).status_code == 404


def test_held_teams_are_listed_to_those_who_see_them(tmp_path: Path) -> None:
    apply(tmp_path)
    assert program("invoices:read").get(HELD).status_code == 404  # nobody has opened the month
    period = BillingPeriod.objects.create(
        month="2026-10", zone="Asia/Shanghai", start="2026-09-30T16:00Z", end="2026-10-31T16:00Z"
    )
    for team, problem, amount in (("nlp", "ValueError: no", None), ("cv", "constraint", Decimal("12.50"))):
        BlockedTeam.objects.create(period=period, team=team, problem=problem, amount=amount, held_at=AFTER)
    listed = program("invoices:read").get(HELD).json()["results"]
    assert [(row["team"], row["problem"], row["amount"]) for row in listed] == [
        ("cv", "constraint", "12.50"), ("nlp", "ValueError: no", None),
    ]  # fmt: skip
    own = program("invoices:read", team="nlp").get(HELD).json()["results"]
    assert [row["team"] for row in own] == ["nlp"]
