"""Interruption policies under changes of closed time: what the platform carries follows the price and the owner."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.report import build_report
from billing.corrections.effect import effect_of
from billing.corrections.services.retroactive import retroactive_acknowledge, retroactive_approve, retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, period_of
from billing.rating.models import RetroactiveChange
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, OCTOBER_OVER, account, bill, people, proofs_hold, shown

pytestmark = pytest.mark.django_db

OCTOBER = datetime(2026, 9, 30, 16, tzinfo=UTC)
POLICY = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": {"cap_hours": "1"}}
CHEAPER = {"gpu": [{"accelerator": "NVIDIA-H800", "price": "9.5"}]}
TO_CV = {"scope": "hq-1", "name": "nlp-train", "team": "cv"}


def hold(number: int, start: str, end: str, reason: str | None, **changed: Any) -> None:
    """Eight devices of nlp-train at 10 an hour; times are of October in UTC."""
    at = lambda text: f"2026-10-{text}:00Z"  # noqa: E731
    ingest_allocations(
        allocation_record(
            number, started_at=at(start), ended_at=at(end), observed_until=at(end), end_reason=reason, **changed
        )
    )


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """28 GPU-hours preempted (280.00, carried), 28 of a lost node (280.00, 80.00 carried), 16 completed (160.00)."""
    people()
    apply(for_all_tests, interruption_policies=[POLICY])
    hold(1, "10T00:00", "10T03:30", "preempted")
    hold(2, "11T00:00", "11T03:30", "node lost")
    hold(3, "12T00:00", "12T02:00", "completed")
    bill()
    assert account("nlp") == Decimal("360.00")


def change(kind: str, fact: dict[str, Any], **changed: Any) -> RetroactiveChange:
    asked = {
        "kind": kind, "name": f"fix-{kind}", "fact": fact, "valid_from": OCTOBER, "valid_until": None,
        "reason": "found out", "evidence": "INC-17", "actor": "sam", "now": IN_NOVEMBER, **changed,
    }  # fmt: skip
    return retroactive_propose(**asked)


def approve(made: RetroactiveChange, *teams: str) -> None:
    for team in teams:
        retroactive_acknowledge(change_id=made.pk, team=team, actor="lea", now=IN_NOVEMBER)
    retroactive_approve(change_id=made.pk, actor="fin", now=IN_NOVEMBER)


def note(kind: str, team: str) -> list[tuple[Any, ...]]:
    return shown(Note.objects.get(kind=kind, team__code=team))


def test_another_price_moves_the_line_and_what_the_platform_carries_of_it(october: None, tmp_path: Path) -> None:
    """72 hours at 9.5 are 684.00, 28 of them carried 266.00, 8 more 76.00: 342.00 instead of 360.00."""
    made = change("price", CHEAPER)
    assert [(one.team, one.charged, one.should_be) for one in effect_of(made).by_team_and_month()] == [
        ("nlp", Decimal("360.00"), Decimal("342.00"))
    ]
    approve(made)
    assert note("credit", "nlp") == [
        ("reversal", "gpu", "-72.000000", "10.0000", "-720.00"),
        ("reversal", "interruption", "-8.000000", "-10.0000", "80.00"),
        ("reversal", "interruption", "-28.000000", "-10.0000", "280.00"),
    ]
    assert note("rebill", "nlp") == [
        ("rebill", "gpu", "72.000000", "9.5000", "684.00"),
        ("rebill", "interruption", "8.000000", "-9.5000", "-76.00"),
        ("rebill", "interruption", "28.000000", "-9.5000", "-266.00"),
    ]
    assert account("nlp") == Decimal("342.00")
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")
    call_command("export_focus", "2026-11", "--out", str(tmp_path))
    call_command("export_journal", "2026-11", "--out", str(tmp_path / "journal.csv"))


def test_another_owner_takes_the_line_and_the_carried_time_with_it(october: None) -> None:
    """From 11 October on: 44 hours and the 8 carried of them go to cv: 440 - 80; nlp keeps 280 - 280."""
    approve(change("namespace", TO_CV, valid_from=datetime(2026, 10, 11, tzinfo=UTC)), "cv", "nlp")
    assert (account("nlp"), account("cv")) == (Decimal("0.00"), Decimal("360.00"))
    assert note("rebill", "cv") == [
        ("rebill", "gpu", "44.000000", "10.0000", "440.00"),
        ("rebill", "interruption", "8.000000", "-10.0000", "-80.00"),
    ]
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_an_owner_that_changes_inside_the_carried_hour_parts_it(october: None) -> None:
    """The lost node's last hour is 02:30 to 03:30; from 03:00 on it is cv's: 4 hours and 4 carried, 40 - 40."""
    until = datetime(2026, 10, 12, tzinfo=UTC)
    approve(
        change("namespace", TO_CV, valid_from=datetime(2026, 10, 11, 3, tzinfo=UTC), valid_until=until), "cv", "nlp"
    )
    assert note("rebill", "cv") == [
        ("rebill", "gpu", "4.000000", "10.0000", "40.00"),
        ("rebill", "interruption", "4.000000", "-10.0000", "-40.00"),
    ]
    assert (account("nlp"), account("cv")) == (Decimal("360.00"), Decimal("0.00"))
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-11")


def test_a_price_that_changes_inside_the_carried_hour_cuts_it(october: None) -> None:
    """From 11 October 03:00 on 9.5: of the carried 8 hours 4 stay at 10, 4 cost 9.5; the line 52 and 20 hours."""
    approve(change("price", CHEAPER, valid_from=datetime(2026, 10, 11, 3, tzinfo=UTC)))
    assert note("rebill", "nlp") == [
        ("rebill", "gpu", "52.000000", "10.0000", "520.00"),
        ("rebill", "gpu", "20.000000", "9.5000", "190.00"),
        ("rebill", "interruption", "4.000000", "-10.0000", "-40.00"),
        ("rebill", "interruption", "4.000000", "-9.5000", "-38.00"),
    ]
    assert account("nlp") == Decimal("520.00") + 190 - 40 - 38 - 280


def test_late_interrupted_usage_follows_the_change_too(october: None) -> None:
    """8 hours preempted on 13 October come late, after nlp-train was found to be cv's at 9.5: 76.00 and -76.00 for cv."""
    approve(change("price", CHEAPER))
    approve(change("namespace", TO_CV), "cv", "nlp")
    hold(4, "13T00:00", "13T01:00", "preempted")
    bill("2026-11", NOVEMBER_OVER)
    document = document_of(Invoice.objects.get(period__month="2026-11"))
    assert document["recipient"]["team"] == "cv"
    assert [(line["kind"], line["unit_price"], line["amount"], line["charge_class"]) for line in document["lines"]] == [
        ("gpu", "9.5000", "76.00", "Correction"), ("interruption", "-9.5000", "-76.00", "Correction"),
    ]  # fmt: skip
    assert (account("nlp"), account("cv")) == (Decimal("0.00"), Decimal("342.00"))
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_the_account_of_the_closed_month_still_adds_up(october: None) -> None:
    """Carried time is the platform's before and after: 36 of 72 hours."""
    approve(change("price", CHEAPER))
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert (report.gpu_seconds["charged"], report.gpu_seconds["platform"]) == (36 * 3600, 36 * 3600)
    assert [check.name for check in report.checks if not check.ok] == []
