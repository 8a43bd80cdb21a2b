"""Tables of corrections: disputes with their steps and holdbacks."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.invoices.models import BillingPeriod, Correction, Invoice, Note
from billing.tenancy.models import Team


class Dispute(models.Model):
    """Dispute of a team about lines of one document, with an amount and a reason; decided within deadlines.

    A rejected dispute may be escalated once; another person then takes the final decision.
    """

    class Status(models.TextChoices):
        OPEN = "open", "open"
        TRIAGED = "triaged", "triaged"
        EVIDENCE = "evidence", "evidence asked for"
        ESCALATED = "escalated", "escalated"
        UPHELD = "upheld", "upheld"
        REJECTED = "rejected", "rejected"
        WITHDRAWN = "withdrawn", "withdrawn"

    class Reason(models.TextChoices):
        QUANTITY = "quantity", "wrong quantity"
        PRICE = "price", "wrong price"
        OWNERSHIP = "ownership", "not ours"
        MFU = "mfu", "wrong efficiency data"
        SLA = "sla", "fault of the platform"
        DUPLICATE = "duplicate", "billed twice"

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="disputes")
    invoice = models.ForeignKey(Invoice, null=True, on_delete=models.PROTECT, related_name="disputes")
    note = models.ForeignKey(Note, null=True, on_delete=models.PROTECT, related_name="disputes")
    positions = ArrayField(models.IntegerField())
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    currency = models.CharField(max_length=3)
    reason_code = models.CharField(max_length=16, choices=Reason.choices)
    statement = models.TextField()
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.OPEN)
    opened_by = models.CharField(max_length=200)
    opened_at = models.DateTimeField()
    triage_due = models.DateTimeField()
    decision_due = models.DateTimeField()
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True)
    decision = models.TextField(blank=True)
    escalated_at = models.DateTimeField(null=True)
    correction = models.ForeignKey(Correction, null=True, on_delete=models.PROTECT, related_name="disputes")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(invoice=None, note__isnull=False) | Q(invoice__isnull=False, note=None),
                name="a_dispute_is_of_one_document",
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="a_dispute_has_an_amount"),
            models.CheckConstraint(
                condition=Q(status__in=["upheld", "rejected", "withdrawn"], decided_at__isnull=False)
                | Q(status__in=["open", "triaged", "evidence", "escalated"]),
                name="a_decided_dispute_has_its_instant",
            ),
        ]

    @property
    def document(self) -> Invoice | Note:
        """Return the disputed invoice or rebill."""
        document = self.invoice or self.note
        if document is None:
            raise ValueError(f"dispute {self.pk}: is of no document")
        return document


class DisputeStep(models.Model):
    """Step of a dispute, with its text or evidence: append-only."""

    dispute = models.ForeignKey(Dispute, on_delete=models.PROTECT, related_name="steps")
    kind = models.CharField(max_length=16)
    actor = models.CharField(max_length=200)
    at = models.DateTimeField()
    text = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]


class DisputeHoldback(models.Model):
    """Disputed amount that an earlier release kept out of the journal; new ones are not created.

    `kinds` (kind of line -> amount) is the part of the document; it is posted once, as the `sequence`-th part of the
    document's journal, with the journal of the month `posted_with`. Otherwise immutable.
    """

    dispute = models.OneToOneField(Dispute, on_delete=models.PROTECT, related_name="hold")
    sequence = models.IntegerField(help_text="number of the holdback within its document, from 1")
    kinds = models.JSONField(help_text="kind of line -> amount as text, adding up to `amount`")
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    reason = models.TextField()
    placed_by = models.CharField(max_length=200)
    placed_at = models.DateTimeField()
    ended_by = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField(null=True)
    ended_reason = models.TextField(blank=True)
    posted_with = models.ForeignKey(BillingPeriod, null=True, on_delete=models.PROTECT, related_name="posted_holds")
    posted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(posted_with=None, posted_at=None) | Q(posted_with__isnull=False, posted_at__isnull=False),
                name="a_posted_hold_has_its_instant",
            ),
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
