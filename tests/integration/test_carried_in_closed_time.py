"""An interruption that was learned of after the close stays charged: the next report says so, and the inbox reminds."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import Report, build_report
from billing.closing.services.waivers import exception_waive
from billing.inbox.findings import findings_of
from billing.invoices.services.periods import period_open
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.corrections import NOVEMBER_OVER, bill, people

pytestmark = pytest.mark.django_db
POLICY = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": {"cap_hours": "1"}}


def hold(number: int, until: str, reason: str | None = None, **changed: Any) -> dict[str, Any]:
    """Eight devices at 10 an hour from two hours before the end of October in Shanghai, 16:00 UTC."""
    ended = {"ended_at": until if reason else None, "observed_until": until, "end_reason": reason}
    return allocation_record(number, started_at="2026-10-31T14:00:00Z", **ended, **changed)


def november() -> Report:
    return build_report(period_open(month="2026-11"), now=NOVEMBER_OVER)


def left(report: Report) -> list[tuple[str, str, Decimal, Decimal | None, bool]]:
    return [(item.kind, item.subject, item.quantity, item.amount, item.blocks) for item in report.exceptions
            if item.kind == "carried_in_closed_time"]  # fmt: skip


@pytest.fixture
def october(tmp_path: Path) -> None:
    """Two holds that still run when October is closed: 16 GPU-hours each, 160.00."""
    people()
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "2026-10-31T16:00:00Z"), hold(2, "2026-10-31T16:00:00Z", namespace="cv"))
    bill()


def test_what_the_platform_would_carry_of_a_closed_month_is_said_and_reminded_of(october: None) -> None:
    """The first is preempted at 17:00: of October 16 GPU-hours. Of the lost node the last hour is in November."""
    ingest_allocations(
        hold(1, "2026-10-31T17:00:00Z", "preempted"), hold(2, "2026-10-31T17:00:00Z", "node lost", namespace="cv")
    )
    report = november()
    assert left(report) == [("carried_in_closed_time", "hq-1/nlp-train", Decimal(16 * 3600), Decimal("160.00"), False)]
    assert "carried_in_closed_time" in {item.kind for item in findings_of(report, NOVEMBER_OVER, ())}
    exception_waive(period=period_open(month="2026-11"), kind="carried_in_closed_time", subject="hq-1/nlp-train",
                    reason="credited by a note", actor="sam", now=NOVEMBER_OVER)  # fmt: skip
    assert "carried_in_closed_time" not in {item.kind for item in findings_of(november(), NOVEMBER_OVER, ())}


def test_a_cap_reaches_into_the_closed_month(october: None) -> None:
    """Lost at 16:30: half an hour of eight devices is of October."""
    ingest_allocations(hold(2, "2026-10-31T16:30:00Z", "node lost", namespace="cv"))
    assert left(november()) == [("carried_in_closed_time", "hq-1/cv", Decimal(4 * 3600), Decimal("40.00"), False)]


def test_what_was_known_at_the_close_was_credited_by_it(tmp_path: Path) -> None:
    people()
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(hold(1, "2026-10-31T17:00:00Z", "preempted"))
    bill()
    assert left(november()) == []
