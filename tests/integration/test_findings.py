"""Unusual days: found by robust z and money, reported once, judged by people, who thereby tune what is reported next."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from billing.budgets.alert_quality import AlertQuality, alert_quality
from billing.budgets.models import Alert, BudgetStatus, CostAnomaly, CountedDays
from billing.budgets.services import (
    BudgetError,
    BudgetWish,
    budget_put,
    days_store,
    feedback_put,
    findings_update,
    standings_refresh,
)
from billing.tenancy.models import AuditEntry, BillingSetup, Team
from tests.factories import allocation_record, apply, ingest_allocations, money, person

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def at(day: int, hour: int = 0, month: int = 10) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC) - 8 * HOUR


def held(day: int, quantity: int, *, hours: int = 10, month: int = 10, namespace: str = "nlp-train") -> None:
    """So many devices for so many hours of a local day, 10.00 an hour each."""
    start, end = at(day, 0, month), at(day, 0, month) + hours * HOUR
    record = allocation_record(
        f"{namespace}-{month}-{day}-{quantity}", quantity=quantity, namespace=namespace, started_at=start.isoformat(),
        ended_at=end.isoformat(), observed_until=end.isoformat(),
    )  # fmt: skip
    assert ingest_allocations(record, now=end).accepted == 1


@pytest.fixture(scope="module")
def usual(for_all_tests: Path) -> None:
    """Three weeks of October, each day 1 or 2 devices for ten hours: 100 or 200; the 22nd is a Thursday."""
    apply(for_all_tests)
    for day in range(1, 22):
        held(day, 1 + day % 2)


def judged(now: datetime) -> list[CostAnomaly]:
    days_store(now=now)
    return findings_update(now=now)


@pytest.mark.parametrize("others", [("nlp", "ocr", "ads"), ("nlp", "ocr")])
def test_a_newcomer_is_compared_with_three_peers_and_with_fewer_not_judged(tmp_path: Path, others: tuple[str, ...]) -> None:
    """What is usual of one or two teams would say what they spend to whoever compares with them."""
    codes = (*others, "cv")
    apply(
        tmp_path, teams=[{"code": code, "name": code, "cost_center": code} for code in codes], consumers=None,
        ownership=[{"cluster": "hq-1", "namespace": code, "team": code, "valid_from": "2026-01-01"} for code in codes],
    )  # fmt: skip
    for number, code in enumerate(others, start=1):
        for day in range(1, 22):
            held(day, number + day % 2, namespace=code)
    held(22, 16, namespace="cv")
    found = [(finding.team.code, finding.basis, finding.median) for finding in judged(at(22, 13))]
    # of each of the three the last fourteen working days, seven even and seven odd: 100 and 200, 200 and 300, 300 and 400
    assert found == ([("cv", "peers", money("250.00"))] if len(others) == 3 else [])


def test_nobody_to_compare_with_says_nothing(tmp_path: Path) -> None:
    apply(tmp_path)
    held(22, 16)
    assert judged(at(22, 13)) == []


def test_a_score_between_the_bars_is_reported_until_it_was_a_false_alarm(tmp_path: Path) -> None:
    apply(tmp_path)
    for day in (*range(1, 3), *range(5, 10), *range(12, 17), *range(19, 22)):
        held(day, 10 + 4 * (day % 3))  # 1000, 1400 or 1800 a working day
    held(22, 56)
    (finding,) = judged(at(22, 13))
    # median 1400, MAD 400: z = 0.6745 x 4200 / 400 = 7.08
    assert (finding.median, finding.mad, finding.z) == (money("1400.00"), money("400.00"), money("7.082"))
    feedback_put(finding=finding, feedback="false", note="", now=at(22, 14), actor="ann")
    held(23, 56)
    assert judged(at(23, 13)) == [], "9 is asked for now"


def test_the_quality_of_alerts_is_what_people_said_of_them(tmp_path: Path) -> None:
    """Right: 1 unusual and 1 planned of 5 answered, 40 %; two unanswered count apart; older than 90 days counts nowhere."""
    apply(tmp_path)
    now = at(28)
    for day, feedback in enumerate(["true", "planned", "false", "false", "false", "", ""], start=1):
        _answered(feedback, day, found=at(day))
    _answered("true", 9, found=now - timedelta(days=91))
    _heard("Ann", 9, fired=at(20))
    _heard("Bob", 8, fired=at(20))  # two a week, which is as much as is wanted
    _heard("Bob", 5, fired=now - timedelta(days=29))
    quality = alert_quality(Team.objects.all(), now)
    assert (quality.reported, quality.answered, quality.right, quality.precision) == (7, 5, 2, money("0.4000"))
    assert quality.to_review
    assert quality.loud == (("Ann", money("2.3")),)
    assert alert_quality(Team.objects.filter(code="cv"), now) == AlertQuality(0, 0, 0)
    CostAnomaly.objects.filter(day="2026-10-03").update(feedback="true")
    _answered("true", 8, found=at(8))
    assert not alert_quality(Team.objects.all(), now).to_review, "4 of 6"


def test_a_lead_reads_how_good_the_alerts_were(tmp_path: Path, client: Client) -> None:
    apply(tmp_path)
    _answered("false", 1, found=timezone.now())
    client.force_login(person("tom", "lead", team="nlp"))
    page = client.get("/anomalies/").content.decode()
    assert "0.0%" in page
    assert "below one half: the rule is to be reviewed" in page
    client.force_login(person("kim", "lead", team="cv"))
    assert "Alert precision" not in client.get("/anomalies/").content.decode()


def test_an_unusual_day_is_found_once_with_what_is_usual(usual: None) -> None:
    assert judged(at(22, 12)) == []
    held(22, 16)
    (finding,) = judged(at(22, 12))  # 16 devices for ten hours, the last of them two hours ago
    assert (finding.team.code, finding.sku, str(finding.day)) == ("nlp", "NVIDIA-H800", "2026-10-22")
    # working days before: 1-2, 5-9, 12-16, 19-21; of the last 14 seven are even, 100, and seven odd, 200
    assert (finding.amount, finding.median, finding.mad, finding.basis) == (
        money("1600.00"), money("150.00"), money("50.00"), "own",
    )  # fmt: skip
    assert finding.z == money("19.561")  # 0.6745 x 1450 / 50 = 19.5605
    assert judged(at(22, 13)) == []
    assert judged(at(23, 3)) == [], "the whole day is the same finding"
    alert = Alert.objects.get()
    assert (alert.kind, alert.value, alert.amount, alert.data_time) == (
        "anomaly", money("1600.00"), money("150.00"), at(22, 10),
    )  # fmt: skip


def facts(findings: list[CostAnomaly]) -> list[tuple[str, Decimal, Decimal, Decimal, Decimal]]:
    return [(str(one.day), one.amount, one.median, one.mad, one.z) for one in findings]


@pytest.mark.parametrize("away", [False, True])
def test_days_that_passed_while_nobody_judged_are_judged_later_as_they_would_have_been(usual: None, away: bool) -> None:
    """The 22nd is a Thursday, the 26th a Monday; on the 24th and 25th nothing was used."""
    for day, quantity in ((22, 16), (23, 2), (26, 16), (27, 2), (28, 1)):
        held(day, quantity)
    assert judged(at(21, 12)) == []
    found = [] if away else [one for day in range(22, 29) for one in judged(at(day, 12))]
    found += judged(at(29, 12))
    # of the fourteen working days before the 26th six are 100, seven 200, and the 22nd is 1,600: z = 0.6745 x 1400 / 50
    assert facts(found) == [
        ("2026-10-22", money("1600.00"), money("150.00"), money("50.00"), money("19.561")),
        ("2026-10-26", money("1600.00"), money("200.00"), money("50.00"), money("18.886")),
    ]  # fmt: skip
    assert [alert.period for alert in Alert.objects.order_by("pk")] == ["2026-10-22", "2026-10-26"]
    CostAnomaly.objects.all().delete()
    assert judged(at(29, 13)) == [], "each is judged once"


def test_a_day_that_was_missed_is_compared_with_the_budget_of_its_own_time(usual: None) -> None:
    """620,000 in October are 20,000 a day: an excess of 1,450 is no tenth of it. November has no budget."""
    held(22, 16)
    assert judged(at(21, 12)) == []
    wish = BudgetWish(period="month", amount=money("620000.00"), valid_until=at(1, month=11))
    budget_put(team=Team.objects.get(code="nlp"), wish=wish, actor="tests")
    standings_refresh(now=at(21, 12))
    assert judged(at(2, 12, month=11)) == []
    BudgetStatus.objects.all().delete()
    CountedDays.objects.update(judged="2026-10-21")
    assert [str(one.day) for one in judged(at(2, 12, month=11))] == ["2026-10-22"]


def test_of_a_long_absence_the_last_month_is_judged(usual: None) -> None:
    held(22, 16)
    held(23, 16)
    assert judged(at(21, 12)) == []
    assert [str(one.day) for one in judged(at(23, 12, month=11))] == ["2026-10-23"], "31 days before the 23rd of November"


def test_an_excess_that_is_young_or_small_is_not_reported(usual: None) -> None:
    held(22, 4)  # 400 by 10:00: 250 above the median
    assert judged(at(22, 14)) == []
    held(23, 16, hours=5)
    assert judged(at(23, 6)) == [], "two hours ago it was 640, 440 above the median"
    assert len(judged(at(23, 7))) == 1, "now that was 800, 600 above"


def test_a_tenth_of_the_daily_budget_is_the_least_that_matters(usual: None) -> None:
    wish = BudgetWish(period="month", amount=money("620000.00"))  # 20,000 a day
    budget_put(team=Team.objects.get(code="nlp"), wish=wish, actor="tests")
    standings_refresh(now=at(22, 1))
    held(22, 16)
    assert judged(at(22, 13)) == []


def test_the_daily_budget_counts_the_days_of_a_month_whose_clock_changes(usual: None) -> None:
    """October in Sydney has 31 days of together 743 hours: a tenth of a day's 8,000.00 is 800.00, of thirty days 826.67."""
    BillingSetup.objects.update(zone="Australia/Sydney")
    wish = BudgetWish(period="month", amount=money("248000.00"))
    budget_put(team=Team.objects.get(code="nlp"), wish=wish, actor="tests")
    standings_refresh(now=at(22, 1))
    held(22, 8, hours=12)
    assert [(found.amount, found.median) for found in judged(at(22, 15))] == [(money("960.00"), money("150.00"))]


def test_false_alarms_raise_the_bar_and_planned_days_are_left_out(usual: None) -> None:
    held(22, 16)
    (finding,) = judged(at(22, 13))
    feedback_put(finding=finding, feedback="planned", note="benchmark week", now=at(22, 14), actor="ann")
    finding.refresh_from_db()
    assert (finding.feedback, finding.feedback_by, finding.feedback_note) == ("planned", "ann", "benchmark week")
    held(23, 17)  # more than was planned
    (second,) = judged(at(23, 13))
    assert second.median == money("150.00"), "with the planned day it would be 200"
    feedback_put(finding=second, feedback="false", note="", now=at(23, 14), actor="ann")
    entry = AuditEntry.objects.filter(action="finding_feedback_put").last()
    assert entry is not None
    assert (entry.detail["before"], entry.detail["after"]) == ("", "false")
    with pytest.raises(BudgetError, match="true, false, planned"):
        feedback_put(finding=second, feedback="perhaps", note="", now=at(23, 14), actor="ann")


def test_what_was_called_expected_is_not_reported_again_for_ninety_days(usual: None) -> None:
    held(22, 16)
    (finding,) = judged(at(22, 13))
    feedback_put(finding=finding, feedback="planned", note="benchmark week", now=at(22, 14), actor="ann")
    held(23, 16)
    assert judged(at(23, 13)) == []
    assert Alert.objects.count() == 1
    CostAnomaly.objects.update(feedback_at=at(23, 13) - timedelta(days=90))
    assert [str(found.day) for found in judged(at(23, 13))] == ["2026-10-23"]


def _answered(feedback: str, day: int, *, found: datetime) -> None:
    CostAnomaly.objects.create(
        team=Team.objects.get(code="nlp"), kind="gpu", sku="NVIDIA-H800", day=f"2026-10-{day:02d}", amount=9, median=1,
        mad=1, z=9, basis="own", found_at=found, feedback=feedback,
    )  # fmt: skip


def _heard(owner: str, count: int, *, fired: datetime) -> None:
    for number in range(count):
        Alert.objects.create(
            cause=f"{owner}-{number}-{fired:%d}", kind="burn", level="info", team=Team.objects.get(code="nlp"),
            period="2026-10", basis="6h", value=1, amount=1, owner=owner, data_time=fired, fired_at=fired,
        )  # fmt: skip
