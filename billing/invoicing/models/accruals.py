"""Estimated accruals of open months: what a ledger posted before the bills, kept as it was told."""

from django.db import models
from django.db.models import Q

from billing.invoicing.models.invoices import BillingPeriod


class Accrual(models.Model):
    """One estimate of an open month. A later revision takes its place; none is ever changed."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="accruals")
    revision = models.IntegerField()
    name = models.CharField(max_length=100, unique=True)
    as_of = models.DateTimeField()
    document = models.TextField(help_text="canonical JSON, the bytes that the hash is of")
    sha256 = models.CharField(max_length=64)
    created_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["period", "revision"]
        constraints = [
            models.UniqueConstraint(fields=["period", "revision"], name="one_accrual_per_revision"),
            models.CheckConstraint(condition=Q(revision__gte=1), name="accrual_revisions_start_at_1"),
        ]

    def __str__(self) -> str:
        return self.name
