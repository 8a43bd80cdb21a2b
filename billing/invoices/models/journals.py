"""Journals exported to the general ledger."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.invoices.models.invoices import BillingPeriod


class JournalExport(models.Model):
    """Journal of a month, identified by the hash of its rows: the same rows exported again are the same export.

    The ledger's acknowledgement is written once: its reference, time and actor.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="journal_exports")
    batch_hash = models.CharField(max_length=64)
    journals = models.IntegerField()
    debit = models.DecimalField(max_digits=20, decimal_places=2, help_text="sum of the debit side, equal to the credit side")
    documents = ArrayField(models.CharField(max_length=100), default=list, help_text="numbers of what it posts")
    in_part = ArrayField(
        models.CharField(max_length=100), default=list, help_text="numbers of what it posts without a disputed part"
    )
    exported_at = models.DateTimeField()
    exported_by = models.CharField(max_length=200)
    reference = models.CharField(max_length=200, blank=True, help_text="of the posting in the ledger")
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["period", "batch_hash"], name="one_export_per_batch"),
            models.CheckConstraint(
                condition=Q(acknowledged_at=None, reference="", acknowledged_by="")
                | Q(acknowledged_at__isnull=False) & ~Q(reference="") & ~Q(acknowledged_by=""),
                name="an_acknowledgement_is_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.period_id} {self.batch_hash[:12]}"
