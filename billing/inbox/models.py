"""What the close check last found in open months, and how each person gets the daily digest."""

from django.contrib.auth.models import User
from django.db import models

from billing.budgets.models import Channel


class MonthFindings(models.Model):
    """What blocks the close of an open month, as of an instant; it can be deleted and made again at any time.

    `content`: findings as JSON (`billing.inbox.findings`). `closable`: nothing blocks it and it has ended.
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
    """The daily digest of one person: by mail to their own address, or to a channel, or not at all.

    Who has no row gets it by mail. `day`: the last local day that is done with.
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
