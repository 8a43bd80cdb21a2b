"""Closes that are prepared."""

from django.db import models
from django.db.models import Q

from billing.invoicing.models.invoices import BillingPeriod


class PreparedClose(models.Model):
    """The close of a month as it was last prepared, so that closing it need not wait for rating: see `prepared.py`.

    `ready`: its charges and drafts are written; they are nobody's bill before the close is adopted. `made_of`: what they
    were rated from beside usage. `attempts`: how often usage was cut off for it. It can be thrown away at any time.
    """

    period = models.OneToOneField(BillingPeriod, on_delete=models.PROTECT, related_name="prepared_close")
    ordinal = models.IntegerField(null=True, unique=True)
    ready = models.BooleanField(default=False)
    made_of = models.CharField(max_length=64, blank=True)
    usage = models.JSONField(default=dict, db_default={}, help_text="the digest of the usage that was rated")
    attempts = models.IntegerField(default=0)
    tried_at = models.DateTimeField()
    took_ms = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ready=False) | Q(ordinal__isnull=False) & ~Q(made_of=""), name="ready_says_what_it_is_made_of"
            )
        ]

    def __str__(self) -> str:
        return f"{self.period_id} as close {self.ordinal}"
