"""What the period report says beside usage without owner or price: doubles, gaps, waivers, months that nobody closed."""

from pathlib import Path

import pytest

from billing.closing.report import Report, build_report
from billing.closing.services.closing import period_close
from billing.closing.services.waivers import WaiverError, exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.usage.services import watermark_advance
from tests.factories import AFTER, SHANGHAI_OCTOBER, allocation_record, apply, hours, ingest_allocations, token_record
from tests.factories import ingest_tokens as report_tokens

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def october() -> Report:
    return build_report(period_of("2026-10"), now=AFTER)


def blocking() -> list[tuple[str, str, int]]:
    return [(item.kind, item.subject, int(item.quantity)) for item in october().blocking]


def waive(kind: str, subject: str) -> None:
    exception_waive(
        period=period_open(month="2026-10"), kind=kind, subject=subject, reason="looked at it", actor="lin", now=AFTER
    )


def test_the_same_device_held_twice_by_one_pod_blocks_the_close() -> None:
    ingest_allocations(
        allocation_record(1, pod_uid="uid-x", ended_at="2026-10-10T02:00:00Z", observed_until="2026-10-10T02:00:00Z"),
        allocation_record(2, pod_uid="uid-x", started_at="2026-10-10T01:30:00Z", ended_at="2026-10-10T03:00:00Z",
                          observed_until="2026-10-10T03:00:00Z"),
        allocation_record(3, pod_uid="uid-x", started_at="2026-10-10T03:00:00Z", ended_at="2026-10-10T04:00:00Z",
                          observed_until="2026-10-10T04:00:00Z"),
        allocation_record(4, pod_uid="uid-x", resource="nvidia.com/mig-1g.10gb"),
    )  # fmt: skip
    assert blocking() == [("overlap", "hq-1/uid-x", 1800)]
    waive("overlap", "hq-1/uid-x")
    assert blocking() == []


def test_a_waiver_covers_what_was_looked_at_and_no_more() -> None:
    report_tokens(token_record(1, input_tokens=-1))
    waive("quarantine", "tests via usage/tokens")
    assert october().closable
    report_tokens(token_record(2, input_tokens=-1))
    assert blocking() == [("quarantine", "tests via usage/tokens", 2)]


def test_only_what_is_there_and_may_be_waived_is_waived() -> None:
    report_tokens(token_record(1, consumer="stranger"))
    with pytest.raises(WaiverError, match="cannot be waived"):
        waive("unowned_consumer", "litellm-hq/stranger")
    with pytest.raises(WaiverError, match="has no exception"):
        waive("metering_gap", "hq-1/nobody")


def test_an_agent_that_fell_silent_blocks_the_close_until_it_has_reported_the_rest() -> None:
    _, end = SHANGHAI_OCTOBER
    watermark_advance(agent="a", cluster="hq-1", watermark=end - hours(2))
    assert blocking() == [("metering_gap", "hq-1/agent a", 7200)]
    watermark_advance(agent="a", cluster="hq-1", watermark=end)
    watermark_advance(agent="a", cluster="hq-1", watermark=end - hours(9))  # a watermark never moves back
    assert blocking() == []


def test_an_earlier_month_with_usage_that_nobody_closed_is_named() -> None:
    report_tokens(token_record(1, time="2026-08-05T00:00:00Z"), token_record(2))
    ingest_allocations(
        allocation_record(1, started_at="2026-09-10T00:00:00Z", ended_at="2026-09-10T01:00:00Z",
                          observed_until="2026-09-10T01:00:00Z")
    )  # fmt: skip
    notes = [(item.kind, item.subject, item.blocks) for item in october().exceptions]
    assert notes == [("unbilled_month", "2026-08", False), ("unbilled_month", "2026-09", False)]
    report_tokens(token_record(3))
    period_close(month="2026-10", actor="lin", now=AFTER)
    assert [item.subject for item in october().exceptions] == ["2026-08", "2026-09"]


def test_reading_a_report_opens_no_period() -> None:
    from billing.invoices.models import BillingPeriod

    october()
    assert not BillingPeriod.objects.exists()
