"""Quality of alerts: precision of anomaly alerts, and the number of alerts that each owner gets.

A rule whose alerts are right less than half of the time is to be reviewed, and no owner should get more than two a week.
Anomalies without feedback say nothing about the rule: they are counted separately, not as wrong.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from django.db.models import Count, QuerySet

from billing.budgets.models import Alert, CostAnomaly
from billing.tenancy.models import Team
from pricing.money import round_to

JUDGED: Final = timedelta(days=90)
HEARD: Final = timedelta(days=28)
PRECISION_WANTED: Final = Fraction(1, 2)
ALERTS_A_WEEK: Final = 2


@dataclass(frozen=True, slots=True)
class AlertQuality:
    """Counts of anomalies of the last 90 days; `loud`: owners who lately got more than two alerts a week."""

    reported: int
    answered: int
    right: int
    loud: tuple[tuple[str, Decimal], ...] = ()

    @property
    def precision(self) -> Decimal | None:
        """Return right over answered, with 4 decimals; None without feedback."""
        return round_to(Fraction(self.right, self.answered), 4) if self.answered else None

    @property
    def to_review(self) -> bool:
        """Return True if less than half of the answered anomalies were right."""
        return self.right < self.answered * PRECISION_WANTED


def alert_quality(teams: QuerySet[Team], now: datetime) -> AlertQuality:
    """Compute the quality of the alerts of these teams; an alert about a planned day was right: the day was unusual."""
    answers: Counter[str] = Counter()
    findings = CostAnomaly.objects.filter(team__in=teams, found_at__gt=now - JUDGED, found_at__lte=now)
    for feedback, count in findings.order_by().values_list("feedback").annotate(Count("pk")):
        answers[feedback] += count
    right = answers[CostAnomaly.Feedback.TRUE] + answers[CostAnomaly.Feedback.PLANNED]
    answered = right + answers[CostAnomaly.Feedback.FALSE]
    return AlertQuality(sum(answers.values()), answered, right, _loud(teams, now))


def _loud(teams: QuerySet[Team], now: datetime) -> tuple[tuple[str, Decimal], ...]:
    alerts = Alert.objects.filter(team__in=teams, fired_at__gt=now - HEARD, fired_at__lte=now)
    weeks = HEARD // timedelta(weeks=1)
    heard = alerts.order_by().values_list("owner").annotate(Count("pk"))
    loud = [(owner, round_to(Fraction(count, weeks), 1)) for owner, count in heard if count > ALERTS_A_WEEK * weeks]
    return tuple(sorted(loud, key=lambda row: (-row[1], row[0])))
