"""Days on which a team spent unusually much on one SKU: found, told once, and judged by people."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from django.db import transaction

from billing.budgets.anomaly import COMPARABLE_DAYS, Score, comparable, is_anomaly, judged, least_impact, threshold_of
from billing.budgets.history import DAY, past_until
from billing.budgets.models import Alert, Budget, BudgetStanding, Channel, Finding
from billing.budgets.services.alerts import alert_fire
from billing.budgets.services.budgets import BudgetError
from billing.budgets.spending import spent_in
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from metering.intervals import Interval
from pricing.money import round_amount, round_to

PERSISTS: Final = timedelta(hours=2)
"""A day is judged by what it had brought two hours ago, so that an excess has lasted that long."""
FEEDBACK_COUNTS: Final = timedelta(days=90)

Key = tuple[str, str, str]
Days = Mapping[date, Fraction]


def findings_update(*, now: datetime) -> list[Finding]:
    """Judge yesterday and today of every team and SKU; returns what is new. Asked again, nothing is told twice."""
    zone = billing_setup().zone
    past = past_until(now, zone)
    by_sku = past.by_sku()
    teams = {team.code: team for team in Team.objects.all()}
    found: list[Finding] = []
    for day, values in _days_judged(now, zone, by_sku):
        for key, value in values.items():
            if key[0] in teams and (finding := _judge(key, day, value, by_sku, teams[key[0]], now)):
                found.append(finding)
    return found


def _days_judged(now: datetime, zone: str, by_sku: Mapping[Key, Days]) -> list[tuple[date, dict[Key, Fraction]]]:
    until = now - PERSISTS
    today = until.astimezone(ZoneInfo(zone)).date()
    midnight = datetime(today.year, today.month, today.day, tzinfo=ZoneInfo(zone))
    sums: dict[Key, Fraction] = {}
    for item in spent_in([Interval(midnight, until)] if midnight < until else []):
        key = (item.team, item.kind, item.sku)
        sums[key] = sums.get(key, Fraction(0)) + item.amount
    yesterday = {key: days[today - DAY] for key, days in by_sku.items() if today - DAY in days}
    return [(today - DAY, yesterday), (today, sums)]


def _judge(
    key: Key, day: date, value: Fraction, by_sku: Mapping[Key, Days], team: Team, now: datetime
) -> Finding | None:
    own = _unplanned(by_sku.get(key, {}), team, key)
    peers = [amount for other, days in by_sku.items() if _peer(other, key) for amount in comparable(days, day)]
    answer = judged(comparable(own, day), peers[-COMPARABLE_DAYS * 20 :], value)
    if answer is None:
        return None
    found, basis = answer
    if not is_anomaly(found, threshold=_threshold(team, key, now), impact=least_impact(_daily_budget(team, now))):
        return None
    return _keep(key, day, value, found, basis, team, now)


def _peer(other: Key, key: Key) -> bool:
    return other[1:] == key[1:] and other[0] != key[0]


def _unplanned(days: Days, team: Team, key: Key) -> Days:
    """The days without those that somebody called planned: they say nothing about what is usual."""
    if not days:
        return days
    planned = Finding.objects.filter(team=team, kind=key[1], sku=key[2], feedback=Finding.Feedback.PLANNED)
    left_out = set(planned.values_list("day", flat=True))
    return {day: amount for day, amount in days.items() if day not in left_out}


def _threshold(team: Team, key: Key, now: datetime) -> Fraction:
    rows = Finding.objects.filter(team=team, kind=key[1], sku=key[2], feedback_at__gt=now - FEEDBACK_COUNTS)
    answers = list(rows.values_list("feedback", flat=True))
    return threshold_of(answers.count(Finding.Feedback.FALSE), answers.count(Finding.Feedback.TRUE))


def _daily_budget(team: Team, now: datetime) -> Fraction | None:
    """The amount per day of the team's largest budget of now."""
    standings = BudgetStanding.objects.filter(budget__team=team, start__lte=now, end__gt=now)
    return max((Fraction(row.amount) / max((row.end - row.start).days, 1) for row in standings), default=None)


def _keep(
    key: Key, day: date, value: Fraction, found: Score, basis: str, team: Team, now: datetime
) -> Finding | None:
    facts = {
        "amount": round_amount(value), "median": round_amount(found.median), "mad": round_amount(found.mad),
        "z": round_to(min(found.z or Fraction(0), Fraction(10**9)), 3), "basis": basis,
    }  # fmt: skip
    with transaction.atomic():
        finding, new = Finding.objects.get_or_create(
            team=team, kind=key[1], sku=key[2], day=day, defaults={**facts, "found_at": now}
        )
        if not new:
            Finding.objects.filter(pk=finding.pk, feedback="").update(**facts)
            return None
        budgets = Budget.objects.filter(team=team)
        alert = Alert(
            cause=f"anomaly:{finding.pk}", kind=Alert.Kind.ANOMALY, level=Alert.Level.WARNING, team=team, finding=finding,
            period=str(day), basis=basis, value=finding.amount, amount=finding.median, data_time=now - PERSISTS,
            owner=next((budget.owner for budget in budgets if budget.owner), team.code), fired_at=now,
        )  # fmt: skip
        alert_fire(alert, Channel.objects.filter(budgets__in=budgets).distinct())
    return finding


def feedback_put(*, finding: Finding, feedback: str, note: str, now: datetime, actor: str) -> None:
    """Keep what a person says about a finding; it tunes from which score on that team and SKU are told.

    Raises BudgetError.
    """
    if feedback not in Finding.Feedback.values:
        raise BudgetError(f"feedback {feedback!r}: must be one of {', '.join(Finding.Feedback.values)}")
    with transaction.atomic():
        before = Finding.objects.select_for_update().get(pk=finding.pk).feedback
        Finding.objects.filter(pk=finding.pk).update(
            feedback=feedback, feedback_note=note.strip()[:500], feedback_by=actor, feedback_at=now
        )
        detail = {"before": before, "after": feedback, "team": finding.team.code, "day": str(finding.day)}
        audit_record(actor=actor, action="finding_feedback_put", subject=f"{finding.sku} {finding.day}"[:300], detail=detail)
