"""A running month is compared with the one before up to the same day and time; a printed page says when, in which zone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billing.closing.usage_profile import same_moment
from billing.invoices.models import BillingPeriod
from tests.factories import apply, ingest_allocations, ingest_capacity, person, signed_in, watched
from tests.factories.boards import board, october
from tests.factories.usage import hold

__all__ = ["october"]
pytestmark = pytest.mark.django_db


def test_the_comparison_goes_by_the_clock_of_the_installation() -> None:
    """In Berlin the night of 25 October has an hour more: noon of the 10th is 10:00 UTC before it, 11:00 UTC after it."""

    def month(name: str, start: datetime, end: datetime) -> BillingPeriod:
        return BillingPeriod(month=name, zone="Europe/Berlin", start=start, end=end)

    september, october = datetime(2026, 9, 30, 22, tzinfo=UTC), datetime(2026, 10, 31, 23, tzinfo=UTC)
    before, now = month("2026-10", september, october), month("2026-11", october, datetime(2026, 11, 30, 23, tzinfo=UTC))
    assert same_moment(now, before, datetime(2026, 11, 10, 11, tzinfo=UTC)) == datetime(2026, 10, 10, 10, tzinfo=UTC)
    january, february = datetime(2026, 1, 31, 23, tzinfo=UTC), datetime(2026, 2, 28, 23, tzinfo=UTC)
    short, march = month("2026-02", january, february), month("2026-03", february, datetime(2026, 3, 31, 22, tzinfo=UTC))
    assert same_moment(march, short, datetime(2026, 3, 30, 10, tzinfo=UTC)) == february


def test_idle_time_is_compared_with_that_of_the_same_days(tmp_path: Path) -> None:
    """On the 10th of both months nlp holds 10 hours (100.00) of a pool of 100; 90 are idle, at 6.00 together 540.00."""
    idle = {"cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "6.0000", "method": "proportional"}
    apply(tmp_path, allocation_policies=[{"name": "idle-v1", "valid_from": "2026-10-01", "idle": [idle]}])
    for month in ("2026-10", "2026-11"):
        span = f"{month}-10T00:00:00Z", f"{month}-10T10:00:00Z"
        ingest_capacity(
            cluster="hq-1", node="n1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=10,
            **dict(zip(("from", "until"), span, strict=True)),
        )  # fmt: skip
        ingest_allocations(hold(int(month[-2:]), *span, quantity=1))
    at = datetime(2026, 11, 12, tzinfo=UTC)
    watched(at)
    bridge = board("2026-11", at).bridge()
    assert bridge is not None
    assert (str(bridge.before), str(bridge.after), bridge.effects) == ("640.00", "640.00", [])


def test_bought_hours_are_compared_with_their_part_of_the_whole_month_before(tmp_path: Path) -> None:
    """1,000 hours a month at 8 for 5 of 31 days are 161.290323, 1,290.32, also on the 12th; 10 others cost 100.00."""
    terms = {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1000",
             "price_per_gpu_hour": "8", "valid_from": "2026-10-01", "valid_until": "2026-10-06"}  # fmt: skip
    apply(tmp_path, commitments=[terms])
    for month in (10, 11):
        ingest_allocations(hold(month, f"2026-{month}-10T00:00:00Z", f"2026-{month}-10T10:00:00Z", quantity=1))
    at = datetime(2026, 11, 12, tzinfo=UTC)
    watched(at)
    for filters in ({}, {"workload": ""}):
        bridge = board("2026-11", at, **filters).bridge()
        assert bridge is not None
        assert (str(bridge.before), str(bridge.after)) == ("1390.32", "100.00")


def test_the_comparison_stands_still_for_a_minute(october: None) -> None:
    """4 devices at 10.00 from 08:00 to 09:00 of the 5th in Shanghai: 30 of the 60 minutes are 20.00, 31 are 20.67."""
    ingest_allocations(hold(7, "2026-10-05T00:00:00Z", "2026-10-05T01:00:00Z", quantity=4))
    at = datetime(2026, 11, 5, 0, 30, tzinfo=UTC)
    watched(at)

    for now, cost, until in (
        (at, "20.00", at), (at + timedelta(seconds=59, microseconds=999_999), "20.00", at),
        (at + timedelta(minutes=1), "20.67", at + timedelta(minutes=1)),
    ):  # fmt: skip
        shown = board("2026-11", now)
        found = shown.bridge()
        assert found is not None
        assert (str(found.before), shown.compared_until) == (cost, until.replace(month=10))


def test_the_page_says_up_to_when_it_compares(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 11, 11, 2, 30, 40, tzinfo=UTC)
    watched(at)
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)
    client = signed_in(person("ann", "finance"))

    text = client.get("/spending/?month=2026-11&part=why").content.decode()
    assert "up to 2026-10-11 10:30, the same day and time" in text


def test_a_printed_page_has_the_time_of_the_billing_zone(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """22:05 UTC of 31 October is the next day in Shanghai."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2026, 10, 31, 22, 5, 59, tzinfo=UTC))
    client = signed_in(person("ann", "finance"))

    assert '<p class="printed">Suanpan · 2026-11-01 06:05 Asia/Shanghai · ann' in client.get("/prices/").content.decode()
