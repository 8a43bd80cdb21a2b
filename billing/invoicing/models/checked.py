"""Closed months that were rated again, and what they were rated from."""

from django.db import models

from billing.invoicing.models.invoices import BillingPeriod


class CheckedClose(models.Model):
    """A closed month that gave the charges that it has when it was last rated again.

    While `fingerprint` (`billing.rating.input_fingerprint`) is the same, rating it once more would give the same.
    """

    period = models.OneToOneField(BillingPeriod, on_delete=models.CASCADE, related_name="checked")
    fingerprint = models.CharField(max_length=64)
    names = models.JSONField(help_text="[cluster, namespace] and [source, consumer] of its usage")

    def __str__(self) -> str:
        return f"{self.period_id} {self.fingerprint[:12]}"
