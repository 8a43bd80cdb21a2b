"""Who pays for interrupted holds that changes of a shared claim have cut into pieces. All amounts were computed by hand.

A pod holds eight cards of a claim at 10.0000 an hour: alone until another pod comes, then half of each with it.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.portal import drilldown
from metering.allocation import Rule
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.months import NOVEMBER_OVER, OCTOBER_OVER
from tests.factories.pages import statements_of

pytestmark = pytest.mark.django_db

CHANGED = Rule.SHARE_CHANGED.value
POLICY = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": {"cap_hours": "1"},
          "evicted": "team"}  # fmt: skip
GPU = "dra/gpu.nvidia.com"


def piece(number: int, start: str, end: str | None, reason: str = CHANGED, share: str = "1", **changed: Any) -> Any:
    """A piece of the hold of the pod `uid-1`; days of October, or `11-01T00:00:00`."""
    at = lambda text: f"2026-{text}Z" if len(text) > 11 else f"2026-10-{text}Z"  # noqa: E731
    rule = {CHANGED: CHANGED}.get(reason, "deletion seen")
    seen: dict[str, Any] = {"ended_at": None, "observed_until": at(start), "end_reason": None}
    if end:
        seen = {"ended_at": at(end), "observed_until": at(end), "end_reason": reason, "end_rule": rule}
    return allocation_record(
        number, **{"pod_uid": "uid-1", "resource": GPU, "device_fraction": share, "started_at": at(start), **seen, **changed}
    )


def close(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> None:
    period_close(month=month, actor="ops", now=now)
    invoices_issue(month=month, actor="ops", now=now)
    proofs = period_verify(month=month)
    assert proofs
    assert all(proof.holds for proof in proofs)


def lines(month: str = "2026-10") -> list[tuple[str, ...]]:
    document = json.loads(Invoice.objects.get(period__month=month, team__code="nlp").document)
    return [
        (line["kind"], line["charge_period"], line["reason"] or "", line["quantity"], line["amount"])
        for line in document["lines"]
    ]


def test_all_pieces_of_a_preempted_hold_are_carried_to_the_second(tmp_path: Path) -> None:
    """8 x 1 x 3600 s + 8 x 0.5 x 1803 s = 36,012 s = 10.003333 device-hours; of another pod's 1 hour nothing."""
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        piece(1, "10T00:00:00", "10T01:00:00"), piece(2, "10T01:00:00", "10T01:30:03", "preempted", "0.5"),
        piece(3, "10T01:00:00", "10T01:30:03", share="0.5", pod_uid="uid-2"),
        piece(4, "10T01:30:03", "10T02:00:03", "completed", pod_uid="uid-2"),
    )  # fmt: skip
    close()
    assert lines() == [
        ("gpu", "2026-10", "", "16.006667", "160.07"), ("interruption", "2026-10", "preempted", "10.003333", "-100.03"),
    ]  # fmt: skip


def test_a_cap_is_counted_back_from_the_end_through_the_pieces(tmp_path: Path) -> None:
    """The last hour of a lost node is 40 minutes at a half and 20 minutes alone: 8 x (1/3 + 1/3) = 5.333333."""
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        piece(1, "10T00:00:00", "10T02:00:00"), piece(2, "10T02:00:00", "10T03:00:00"),
        piece(3, "10T03:00:00", "10T03:40:00", "node lost", "0.5"),
    )  # fmt: skip
    close()
    assert lines()[1:] == [("interruption", "2026-10", "node lost", "5.333333", "-53.33")]
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert int(report.gpu_seconds["platform"] or 0) == 8 * 2400
    month = statements_of()
    line = next(item for item in month.statements[0].lines if item.key.kind == "interruption")
    scope = drilldown.scope_of(line, period_of("2026-10"))
    (job,) = drilldown.workloads(line, scope).parts
    assert (job.quantity, job.amount) == (Decimal("5.333333"), Decimal("-53.33"))
    held = drilldown.holds(line, scope, "pod/uid-1", job).parts
    assert sorted((part.facts["first"], part.facts["last"], part.quantity) for part in held) == [
        (datetime(2026, 10, 10, 2, 40, tzinfo=UTC), datetime(2026, 10, 10, 3, tzinfo=UTC), Decimal("2.666667")),
        (datetime(2026, 10, 10, 3, tzinfo=UTC), datetime(2026, 10, 10, 3, 40, tzinfo=UTC), Decimal("2.666666")),
    ]


def test_the_policy_at_the_end_of_the_hold_decides_of_pieces_before_its_first_day(tmp_path: Path) -> None:
    """As of a hold in one piece: 8 x 1 h of the 10th, and 4 x 0.5 h of the 11th, from which on the policy stands."""
    apply(tmp_path, interruption_policies=[{**POLICY, "valid_from": "2026-10-11T00:00:00Z"}])
    ingest_allocations(
        piece(1, "10T22:00:00", "10T23:00:00"), piece(2, "10T23:00:00", "11T00:00:00", share="0.25"),
        piece(3, "11T00:00:00", "11T00:30:00", "preempted", "0.5"),
    )  # fmt: skip
    close()
    assert lines()[1:] == [("interruption", "2026-10", "preempted", "12.000000", "-120.00")]


def test_a_piece_that_a_close_had_billed_before_the_end_was_known_stays_billed(tmp_path: Path) -> None:
    """Known before the close: 1 h of eight, then 1 h of four in October. After it: 2 h of four in November, preempted."""
    apply(tmp_path, interruption_policies=[POLICY])
    last = piece(2, "31T15:00:00", None, share="0.5", observed_until="2026-10-31T16:00:00Z")
    ingest_allocations(piece(1, "31T14:00:00", "31T15:00:00"), last)
    close()
    assert lines() == [("gpu", "2026-10", "", "12.000000", "120.00")]
    ingest_allocations(
        piece(2, "31T15:00:00", "31T17:00:00", share="0.5"), piece(3, "31T17:00:00", "31T18:30:00", "preempted", "0.25")
    )
    close("2026-11", NOVEMBER_OVER)
    assert lines("2026-11") == [  # 4 x 1 h and 2 x 1.5 h, all of it carried
        ("gpu", "2026-11", "", "7.000000", "70.00"), ("interruption", "2026-11", "preempted", "7.000000", "-70.00"),
    ]  # fmt: skip
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_a_piece_in_an_earlier_month_that_became_known_with_the_end_is_carried_there(tmp_path: Path) -> None:
    """A whole hold that comes late: its October piece is a correction of October, carried like the rest."""
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(piece(9, "09T00:00:00", "09T01:00:00", "completed", pod_uid="uid-9"))
    close()
    ingest_allocations(
        piece(1, "31T14:00:00", "31T16:00:00"), piece(2, "31T16:00:00", "31T17:00:00", "preempted", "0.5")
    )
    close("2026-11", NOVEMBER_OVER)
    assert sorted(lines("2026-11")) == [
        ("gpu", "2026-10", "", "16.000000", "160.00"), ("gpu", "2026-11", "", "4.000000", "40.00"),
        ("interruption", "2026-10", "preempted", "16.000000", "-160.00"),
        ("interruption", "2026-11", "preempted", "4.000000", "-40.00"),
    ]  # fmt: skip


def test_an_end_before_a_close_carries_the_pieces_in_that_close_also_where_it_lies_after_the_month(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        piece(1, "31T14:00:00", "31T16:00:00"), piece(2, "31T16:00:00", "31T17:00:00", "preempted", "0.5")
    )
    close()
    assert lines()[1:] == [("interruption", "2026-10", "preempted", "16.000000", "-160.00")]
    close("2026-11", NOVEMBER_OVER)
    assert lines("2026-11") == [
        ("gpu", "2026-11", "", "4.000000", "40.00"), ("interruption", "2026-11", "preempted", "4.000000", "-40.00"),
    ]  # fmt: skip


def test_a_piece_that_was_taken_back_does_not_count_those_before_it_twice(tmp_path: Path) -> None:
    """The pod had ended before its share seemed to change: piece 3 is empty, piece 2 is the last."""
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        piece(1, "10T00:00:00", "10T01:00:00"), piece(2, "10T01:00:00", "10T03:00:00", share="0.5"),
        piece(3, "10T03:00:00", None, share="0.25"),
    )  # fmt: skip
    ingest_allocations(
        piece(2, "10T01:00:00", "10T02:00:00", "preempted", "0.5"),
        piece(3, "10T03:00:00", "10T03:00:00", "preempted", "0.25"),
    )
    close()
    assert lines() == [
        ("gpu", "2026-10", "", "12.000000", "120.00"), ("interruption", "2026-10", "preempted", "12.000000", "-120.00"),
    ]  # fmt: skip


def test_runs_of_one_pod_that_no_change_of_share_ended_are_holds_of_their_own(tmp_path: Path) -> None:
    apply(tmp_path, interruption_policies=[POLICY])
    ingest_allocations(
        piece(1, "10T00:00:00", "10T01:00:00", "failed"), piece(2, "10T01:00:00", "10T02:00:00", "preempted"),
        piece(3, "10T00:30:00", "10T01:00:00", resource="dra/gpu.nvidia.com/MIG-1g"),
    )  # fmt: skip
    close()
    assert lines()[1:] == [("interruption", "2026-10", "preempted", "8.000000", "-80.00")]
