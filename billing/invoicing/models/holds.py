"""Parts of documents that finance keeps off the ledger while they are disputed."""

from django.db import models
from django.db.models import Q

from billing.invoicing.models.disputes import Dispute


class DisputeHold(models.Model):
    """The disputed amount of a large dispute, kept out of the journal until it is decided or let go.

    `positions` and `kinds` (kind of line -> amount) say what of the document is held; it is posted as the `sequence`-th
    part of the document's journal once the hold has ended. Placed once per dispute, ended once, never changed otherwise.
    """

    dispute = models.OneToOneField(Dispute, on_delete=models.PROTECT, related_name="hold")
    sequence = models.IntegerField(help_text="the how-manieth hold of its document")
    kinds = models.JSONField(help_text="kind of line -> amount as text, adding up to `amount`")
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    reason = models.TextField()
    placed_by = models.CharField(max_length=200)
    placed_at = models.DateTimeField()
    ended_by = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField(null=True)
    ended_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="a_hold_has_an_amount"),
            models.CheckConstraint(condition=~Q(reason=""), name="a_hold_has_a_reason"),
            models.CheckConstraint(
                condition=Q(ended_at=None, ended_by="", ended_reason="")
                | Q(ended_at__isnull=False) & ~Q(ended_by="") & ~Q(ended_reason=""),
                name="an_ended_hold_is_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"hold of dispute {self.dispute_id}"
