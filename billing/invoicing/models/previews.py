"""The last assessment of large months, for pages that must not wait for one. It can be thrown away at any time."""

from django.db import models


class MonthPreview(models.Model):
    """When a month was last assessed for pages, how large it was, and (where it is large) what came of it.

    `facts` and `report` are JSON by the shapes of `billing.closing.previews`; `report` empty where nobody made one.
    """

    month = models.CharField(max_length=7, unique=True)
    ordinal = models.IntegerField(null=True, help_text="of the period's close, as it was then")
    as_of = models.DateTimeField()
    took_ms = models.IntegerField()
    lines = models.IntegerField()
    facts = models.BinaryField(default=bytes)
    report = models.BinaryField(default=bytes)
    report_as_of = models.DateTimeField(null=True)
    report_took_ms = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.month} as of {self.as_of.isoformat()}"


class TeamPreview(models.Model):
    """What one team would owe by that assessment: sums by kind for tables, lines and verdicts for its own pages.

    `compared`: sums of as many days of the month before; empty unless the month was running.
    """

    preview = models.ForeignKey(MonthPreview, on_delete=models.CASCADE, related_name="teams")
    team = models.CharField(max_length=64)
    sums = models.BinaryField()
    content = models.BinaryField()
    compared = models.BinaryField(default=bytes)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["preview", "team"], name="one_preview_per_team")]

    def __str__(self) -> str:
        return f"{self.preview_id} {self.team}"
