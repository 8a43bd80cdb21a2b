"""Anomalies: days on which a team spent unusually much on one SKU, alerted once, with feedback."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Final

from django.db import transaction

from billing.budgets.anomaly import (
    FEWEST_DAYS,
    LEAST_IMPACT,
    Score,
    comparable,
    is_anomaly,
    judged,
    least_impact,
    threshold_of,
)
from billing.budgets.forecast import DAY
from billing.budgets.history import Past
from billing.budgets.models import Alert, Budget, BudgetStatus, Channel, CostAnomaly, CountedDays
from billing.budgets.services.alerts import alert_fire
from billing.budgets.services.budgets import BudgetError
from billing.budgets.spending import spent_in
from billing.runtime.apart import each_apart
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from metering.intervals import Interval, day_of, midnight_of
from metering.messages import Message
from pricing.money import round_amount, round_to

PERSISTS: Final = timedelta(hours=2)
"""Delay of the judgement: a day is judged by its spending up to two hours ago, so that an excess has lasted that long."""
FEEDBACK_COUNTS: Final = timedelta(days=90)
FEWEST_TEAMS: Final = 3
"""Fewest other teams with enough days for a comparison, so that their median reveals no team's spending."""
MOST_DAYS: Final = 31
"""Most missed days that are judged later; an older anomaly helps nobody any more."""

Key = tuple[str, str, str]
Days = Mapping[date, Fraction]


def findings_update(*, now: datetime) -> list[CostAnomaly]:
    """Judge yesterday, today, and the days before that were missed, of every team and SKU; returns new anomalies.

    In the order of days, each as on the day after it. A second call alerts nothing twice.
    """
    zone = billing_setup().zone
    until = now - PERSISTS
    today = day_of(until, zone)
    midnight = midnight_of(today, zone)
    found = list[CostAnomaly]()
    for day in _days_ended(today):
        judge = _Judge(day, zone, now)
        found += judge.findings(day, {key: days[day] for key, days in judge.days.items() if day in days})
    sums: dict[Key, Fraction] = defaultdict(Fraction)
    for item in spent_in([Interval(midnight, until)] if midnight < until else []):
        sums[item.team, item.kind, item.sku] += item.amount
    # by the judge of yesterday, the last complete day
    found += judge.findings(today, sums)
    CountedDays.objects.update(judged=day)
    return found


def _days_ended(today: date) -> list[date]:
    """Return yesterday, and the days before it that were missed, at most MOST_DAYS."""
    judged = CountedDays.objects.values_list("judged", flat=True).first()
    number = 1 if judged is None else min(max((today - DAY - judged).days, 1), MOST_DAYS)
    return [today - back * DAY for back in range(number, 0, -1)]


class _Judge:
    """Judge of a day's spending, by data known when the day had ended and current feedback; peers are read when needed."""

    def __init__(self, last: date, zone: str, now: datetime) -> None:
        self.days, self._now, self._zone = Past(last, []).by_sku(), now, zone
        self._ended = midnight_of(last + DAY, zone)
        self._teams = {team.code: team for team in Team.objects.all()}
        self._feedback: dict[Key, list[tuple[str, date]]] = defaultdict(list)
        answered = CostAnomaly.objects.exclude(feedback="").select_related("team")
        self._expected: dict[Key, Fraction] = {}
        for row in answered.filter(feedback_at__gt=now - FEEDBACK_COUNTS):
            key = (row.team.code, row.kind, row.sku)
            self._feedback[key].append((row.feedback, row.day))
            if row.feedback == CostAnomaly.Feedback.PLANNED:
                self._expected[key] = max(Fraction(row.amount), self._expected.get(key, Fraction(0)))
        self._peers: dict[tuple[str, str, date], dict[str, list[Fraction]]] = {}

    def findings(self, day: date, values: Mapping[Key, Fraction]) -> list[CostAnomaly]:
        """Return the new anomalies of a day. A failure for one team and SKU affects no other."""
        found = each_apart(values, lambda key: self.finding(key, day, values[key]))
        return [finding for finding in found if finding is not None]

    def finding(self, key: Key, day: date, value: Fraction) -> CostAnomaly | None:
        """Return the anomaly if the day is unusual and new; None if feedback lately called as much expected."""
        if round_amount(value) <= self._expected.get(key, Fraction(-1)):
            return None
        team = self._teams.get(key[0])
        answer = judged(comparable(self._unplanned(key), day), lambda: self._peers_of(key, day), value)
        if team is None or answer is None or not is_anomaly(answer[0], threshold=self._threshold(key), impact=LEAST_IMPACT):
            return None
        if answer[0].impact < least_impact(_daily_budget(team, self._ended, self._zone)):
            return None
        return _keep(key, day, value, *answer, team, self._now)

    def _unplanned(self, key: Key) -> Days:
        """Return the days except those that feedback called planned: they are not usual."""
        planned = {day for feedback, day in self._feedback[key] if feedback == CostAnomaly.Feedback.PLANNED}
        days = self.days.get(key, {})
        return {day: amount for day, amount in days.items() if day not in planned} if planned else days

    def _threshold(self, key: Key) -> Fraction:
        answers = [feedback for feedback, _ in self._feedback[key]]
        return threshold_of(answers.count(CostAnomaly.Feedback.FALSE), answers.count(CostAnomaly.Feedback.TRUE))

    def _peers_of(self, key: Key, day: date) -> list[Fraction]:
        """Return comparable days of the same SKU of other teams; none if few teams would reveal their spending."""
        team, kind, sku = key
        if (kind, sku, day) not in self._peers:
            alike = {other[0]: comparable(days, day) for other, days in self.days.items() if other[1:] == (kind, sku)}
            self._peers[kind, sku, day] = alike
        others = [days for other, days in self._peers[kind, sku, day].items() if other != team and len(days) >= FEWEST_DAYS]
        return [amount for days in others for amount in days] if len(others) >= FEWEST_TEAMS else []


def _daily_budget(team: Team, at: datetime, zone: str) -> Fraction | None:
    """Return the amount per local day of the team's largest budget of that instant."""
    standings = BudgetStatus.objects.filter(budget__team=team, start__lte=at, end__gt=at)
    days = ((row.amount, (day_of(row.end, zone) - day_of(row.start, zone)).days) for row in standings)
    return max((Fraction(amount) / number for amount, number in days), default=None)


def _keep(
    key: Key, day: date, value: Fraction, found: Score, basis: str, team: Team, now: datetime
) -> CostAnomaly | None:
    facts = {
        "amount": round_amount(value), "median": round_amount(found.median), "mad": round_amount(found.mad),
        # a tiny MAD makes z huge: the column holds 13 digits before the point
        "z": round_to(min(found.z or Fraction(0), Fraction(10**9)), 3), "basis": basis,
    }  # fmt: skip
    with transaction.atomic():
        finding, new = CostAnomaly.objects.get_or_create(
            team=team, kind=key[1], sku=key[2], day=day, defaults={**facts, "found_at": now}
        )
        if not new:
            # spending still grows during the day; after feedback the figures stay
            CostAnomaly.objects.filter(pk=finding.pk, feedback="").update(**facts)
            return None
        budgets = Budget.objects.filter(team=team)
        alert = Alert(
            cause=f"anomaly:{finding.pk}", kind=Alert.Kind.ANOMALY, level=Alert.Level.WARNING, team=team, finding=finding,
            period=str(day), basis=basis, value=finding.amount, amount=finding.median, data_time=now - PERSISTS,
            owner=next((budget.owner for budget in budgets if budget.owner), team.code), fired_at=now,
        )  # fmt: skip
        alert_fire(alert, Channel.objects.filter(budgets__in=budgets).distinct())
    return finding


def feedback_put(*, finding: CostAnomaly, feedback: str, note: str, now: datetime, actor: str) -> None:
    """Store the feedback on an anomaly; it tunes the score from which alerts on that team and SKU are sent.

    Raises BudgetError.
    """
    if feedback not in CostAnomaly.Feedback.values:
        raise BudgetError(Message(
            "feedback %(feedback)s: must be one of %(names)s",
            feedback=repr(feedback), names=", ".join(CostAnomaly.Feedback.values),
        ))
    with transaction.atomic():
        before = CostAnomaly.objects.select_for_update().get(pk=finding.pk).feedback
        CostAnomaly.objects.filter(pk=finding.pk).update(
            feedback=feedback, feedback_note=note.strip()[:500], feedback_by=actor, feedback_at=now
        )
        detail = {"before": before, "after": feedback, "team": finding.team.code, "day": str(finding.day)}
        audit_record(actor=actor, action="finding_feedback_put", subject=f"{finding.sku} {finding.day}"[:300], detail=detail)
