"""What the building's meter counted against what was charged: within 3 %, or it blocks the close."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from billing.closing.models import MeterReading
from billing.closing.report import Check, Report, build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.energy import ReadingError, meter_reading_put
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.tenancy.models import AuditEntry
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.carbon import PRICES, SHEET
from tests.factories.commands import Manage

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
NAME = "energy at the meter = charged + shared (within 3%)"
TEN_HOURS = {"ended_at": "2026-10-10T10:00:00Z", "observed_until": "2026-10-10T10:00:00Z"}


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> Path:
    """nlp and the platform held 8 GPUs for 10 hours each: 160 h x (0.7 + 2.4 / 8) kW x 1.3 = 208 kWh."""
    apply(for_all_tests, cost_sheets=[{"name": "h800", **SHEET}], price_versions=PRICES, consumers=None)
    for number, namespace in ((1, "nlp-train"), (2, "serving")):
        ingest_allocations(allocation_record(number, namespace=namespace, **TEN_HOURS))
    return for_all_tests


def reported(metered: str, shared: str = "0", cluster: str = "hq-1") -> MeterReading:
    return meter_reading_put(
        month="2026-10", cluster=cluster, metered=metered, shared=shared, source="PDU export", actor="lin", now=OVER
    )


def report() -> Report:
    return build_report(period_of("2026-10"), now=OVER)


def energy() -> Check:
    return next(check for check in report().checks if check.name == NAME)


def test_devices_of_unknown_power_are_named_and_not_guessed(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    reported("100")
    assert energy() == Check(NAME, True, "hq-1: not compared, the power of NVIDIA-H800 is not known", compared=False)


def test_without_a_reading_nothing_is_compared_and_nothing_held(october: Path) -> None:
    assert energy() == Check(NAME, True, "no meter was read: `manage.py meter_reading`", compared=False)
    assert period_close(month="2026-10", actor="ops", now=OVER).changed


@pytest.mark.parametrize(
    ("metered", "shared", "difference"),
    [
        ("208", "0", None),
        ("214.432", "0", None),  # 6.432 kWh differ, 3 % of it are 6.43296
        ("214.434", "0", "6.434"),  # 3 % of it are 6.43302
        ("201.942", "0", None),  # 6.058 kWh less, 3 % of it are 6.05826
        ("201.941", "0", "6.059"),  # 3 % of it are 6.05823
        ("260", "52", None),
        ("260", "40", "12"),
    ],
)
def test_more_than_three_per_cent_blocks_the_close(october: Path, metered: str, shared: str, difference: str | None) -> None:
    reported(metered, shared)
    found = [item for item in report().blocking if item.kind == "energy_difference"]
    assert [item.quantity for item in found] == ([Decimal(difference)] if difference else [])
    assert energy().ok == (difference is None)
    if difference:
        with pytest.raises(CloseRefusedError):
            period_close(month="2026-10", actor="ops", now=OVER)
    else:
        assert period_close(month="2026-10", actor="ops", now=OVER).changed


def test_the_last_reading_counts_and_a_difference_can_be_answered_for(october: Path) -> None:
    reported("500")
    reported("300")
    assert energy().detail == "hq-1: 300.000 kWh metered, 208.000 charged, 0.000 shared, 92.000 differ"
    exception_waive(
        period=period_of("2026-10"), kind="energy_difference", subject="hq-1", reason="test bench", actor="lin", now=OVER
    )
    assert energy().ok
    reported("150")
    assert [(item.subject, item.quantity) for item in report().blocking] == [("hq-1 (charged, not metered)", Decimal(58))]
    reported("300")
    assert period_close(month="2026-10", actor="ops", now=OVER).changed


@pytest.mark.parametrize(
    ("metered", "shared", "said"),
    [("0", "0", "must be above 0"), ("10", "11", "a part of it"), ("ten", "0", "is not a decimal"),
     ("1.0001", "0", "at most 3 decimals"), ("-1", "0", "must be 0 or more"), ("NaN", "0", "must be 0 or more")],
)  # fmt: skip
def test_a_reading_that_cannot_be_is_refused(october: Path, metered: str, shared: str, said: str) -> None:
    with pytest.raises(ReadingError, match=said):
        reported(metered, shared)


def test_a_reading_stays_as_it_was_reported(october: Path) -> None:
    reported("208")
    assert AuditEntry.objects.get(action="meter_reading_put").detail["metered_kwh"] == "208"
    for statement in ("UPDATE {} SET metered_kwh = 1", "DELETE FROM {}", "TRUNCATE {}"):
        refused = pytest.raises(DatabaseError, match="meter")
        with refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement.format("closing_meterreading"))


def test_the_command_and_the_page_take_a_reading(october: Path, capsys: pytest.CaptureFixture[str]) -> None:
    person("lin", "finance")
    call_command("meter_reading", "2026-10", "--cluster", "hq-1", "--kwh", "208", "--source", "PDU", "--by", "lin", "--json")
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["cluster"], Decimal(str(answer["metered_kwh"]))) == ("hq-1", Decimal(208))
    asked = ("meter_reading", "2026-10", "--cluster", "hq-1", "--kwh", "x", "--source", "PDU", "--by", "lin")
    refused = Manage(capsys)(*asked).error
    assert "is not a decimal" in refused
    person("fin", "finance")
    client = signed_in(User.objects.get(username="fin"))
    form = {"cluster": "hq-1", "metered_kwh": "1,000", "shared_kwh": "", "source": "PDU"}
    assert client.post("/close/2026-10/meters/", form).status_code == 302
    page = client.get("/close/?month=2026-10").content.decode()
    assert "Meter and charges differ" in page
    assert "1,000.000 kWh metered" in page
    assert client.post("/close/2026-10/meters/", {**form, "source": ""}).status_code == 409
