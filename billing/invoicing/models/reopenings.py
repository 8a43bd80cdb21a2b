"""Requests to take a close back, decided by a second person, and what they took back."""

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Lower, Trim
from django.db.models.lookups import Exact

from billing.invoicing.models.invoices import BillingPeriod


class PeriodReopening(models.Model):
    """One request to open a month again that is closed, or whose close holds teams.

    `closing` is the close that it takes back, `drafts` what it voided.
    Decided once, it never changes; the database opens no closed month without an approved one.
    """

    class Status(models.TextChoices):
        REQUESTED = "requested", "waits for a second person"
        APPROVED = "approved", "approved: the month was opened again"
        REJECTED = "rejected", "turned down"

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="reopenings")
    closing = models.IntegerField()
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.REQUESTED)
    reason = models.TextField()
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()
    closed_by = models.CharField(max_length=200, help_text="who had closed the month")
    closed_at = models.DateTimeField(null=True, help_text="none where the close held teams and never ended")
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True)
    decision = models.TextField(blank=True, help_text="why it was turned down")
    drafts = models.IntegerField(null=True, help_text="how many drafts the reopening voided")
    last_draft = models.BigIntegerField(null=True, help_text="id of the last draft of the close that it takes back")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=~Q(Exact(Trim("reason"), Value(""))), name="reopening_has_a_reason"),
            models.CheckConstraint(
                condition=~Q(status="approved")
                | ~Q(Exact(Lower(Trim("decided_by")), Lower(Trim(F("requested_by"))))),
                name="reopening_takes_two_persons",
            ),
            models.CheckConstraint(
                condition=Q(status="requested", decided_by="", decided_at=None, drafts=None)
                | Q(status="approved", decided_at__isnull=False, drafts__isnull=False) & ~Q(decided_by="")
                | Q(status="rejected", decided_at__isnull=False, drafts=None) & ~Q(decided_by="") & ~Q(decision=""),
                name="a_decided_reopening_is_whole",
            ),
            models.UniqueConstraint(fields=["period"], condition=Q(status="requested"), name="one_reopening_waits"),
            models.UniqueConstraint(
                fields=["period", "closing"], condition=Q(status="approved"), name="a_close_is_taken_back_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.period_id} {self.status}"
