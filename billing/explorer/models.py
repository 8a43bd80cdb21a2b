"""Sums of months for the explorer, which can be deleted and rebuilt at any time; saved views and report schedules."""

from django.contrib.auth.models import User
from django.db import models

from billing.budgets.models import Channel
from billing.tenancy.models import Team


class MonthCube(models.Model):
    """Lines of a month, split by day and workload (`billing.explorer.building`).

    `source`: fingerprint of the data it was built from; the cube is valid while that is the same. `rows`: their number.
    """

    month = models.CharField(max_length=7, unique=True)
    source = models.CharField(max_length=200)
    as_of = models.DateTimeField()
    took_ms = models.IntegerField()
    rows = models.IntegerField()
    facts = models.BinaryField(help_text="whether it is a preview, and what it leaves out")

    def __str__(self) -> str:
        return f"{self.month} as of {self.as_of}"


class CubeColumn(models.Model):
    """Column of a cube, compressed: names with their codes, or whole numbers."""

    cube = models.ForeignKey(MonthCube, on_delete=models.CASCADE, related_name="columns")
    name = models.CharField(max_length=32)
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cube", "name"], name="one_column_of_a_name")]

    def __str__(self) -> str:
        return f"{self.cube_id} {self.name}"


class SavedView(models.Model):
    """Saved query; with `team`, everyone who may see that team finds it too, and runs it with their own rights.

    `query`: the query string of the address.
    """

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=100)
    query = models.TextField()
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="saved_views")

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_view_of_a_name")]

    def __str__(self) -> str:
        return self.name


class ReportSchedule(models.Model):
    """Schedule that sends a saved view to a channel, with the data that its owner may see at that time.

    `hour`: local hour of the day; weekly reports go out on Mondays, monthly ones on the first.
    """

    class Cadence(models.TextChoices):
        DAILY = "daily", "every day"
        WEEKLY = "weekly", "every Monday"
        MONTHLY = "monthly", "every first of a month"

    view = models.ForeignKey(SavedView, on_delete=models.CASCADE, related_name="schedules")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="reports")
    cadence = models.CharField(max_length=16, choices=Cadence.choices)
    hour = models.PositiveSmallIntegerField(default=8)
    next_at = models.DateTimeField(db_index=True)
    attempts = models.IntegerField(default=0)
    last_sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["view", "channel", "cadence"], name="one_report_of_a_view_per_channel"),
            models.CheckConstraint(condition=models.Q(hour__lt=24), name="report_hour_is_one"),
        ]

    def __str__(self) -> str:
        return f"{self.view} {self.cadence}"
