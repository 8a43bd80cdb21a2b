"""Stored findings of the close check in open months, and the digest settings of each person."""

from django.contrib.auth.models import User
from django.db import models

from billing.budgets.models import Channel


class MonthFindings(models.Model):
    """Findings that block the close of an open month, at one time; can be deleted and rebuilt at any time.

    `content`: findings as JSON (`billing.inbox.findings`). `closable`: the month has ended and nothing blocks the close.
    """

    month = models.CharField(max_length=7, unique=True)
    as_of = models.DateTimeField()
    closable = models.BooleanField()
    content = models.JSONField(default=list)

    class Meta:
        ordering = ["month"]

    def __str__(self) -> str:
        return f"{self.month} as of {self.as_of}"


class Digest(models.Model):
    """Daily digest settings of one person: by mail to their own address, or to a channel, or off.

    The default without a row is mail. `day`: the last local day that is done.
    """

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="digest")
    wanted = models.BooleanField(default=True)
    channel = models.ForeignKey(Channel, null=True, blank=True, on_delete=models.SET_NULL, related_name="digests")
    day = models.DateField(null=True)
    attempts = models.IntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=300, blank=True)

    def __str__(self) -> str:
        return f"digest of {self.user}"
