"""Budgets of teams: how much a team plans to spend in a period, and when somebody wants to know."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.tenancy.models import Team


class Budget(models.Model):
    """An amount per team and kind of period, with thresholds in percent."""

    class Period(models.TextChoices):
        MONTH = "month", "month"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="budgets")
    period = models.CharField(max_length=16, choices=Period.choices)
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    thresholds = ArrayField(models.IntegerField())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "period"], name="one_budget_per_team_and_period"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="budget_is_positive"),
        ]
