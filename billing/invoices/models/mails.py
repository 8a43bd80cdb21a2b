"""Billing contacts, and every mail of a document that was sent or is pending."""

from django.db import models
from django.db.models import F, Q

from billing.invoices.models.invoices import Invoice
from billing.invoices.models.notes import Note
from billing.tenancy.models import Team


class BillingContact(models.Model):
    """Address that gets every document of a team issued in [valid_from, valid_until), local days of the billing zone."""

    class Language(models.TextChoices):
        CHINESE = "zh-hans", "中文"
        ENGLISH = "en", "English"

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="billing_contacts")
    address = models.EmailField()
    name = models.CharField(max_length=200, blank=True, help_text="of the person or the desk")
    language = models.CharField(max_length=8, choices=Language.choices)
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, help_text="first day on which it gets nothing any more")
    set_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["team__code", "address", "valid_from"]
        constraints = [
            models.CheckConstraint(
                condition=Q(valid_until=None) | Q(valid_until__gte=F("valid_from")), name="a_contact_ends_after_it_begins"
            ),
            models.UniqueConstraint(
                fields=["team", "address"], condition=Q(valid_until=None), name="one_open_contact_per_address"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team_id} {self.address}"


class DocumentMail(models.Model):
    """Mail of one document to one recipient: written in the transaction of the issue, sent by a worker.

    `round` counts requests by people: retries of one round carry one Message-ID, a resend carries another.
    """

    class Status(models.TextChoices):
        PENDING = "pending", "waits"
        SENT = "sent", "sent"
        FAILED = "failed", "failed"

    invoice = models.ForeignKey(Invoice, null=True, on_delete=models.PROTECT, related_name="mails")
    note = models.ForeignKey(Note, null=True, on_delete=models.PROTECT, related_name="mails")
    address = models.EmailField()
    language = models.CharField(max_length=8, choices=BillingContact.Language.choices)
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.PENDING)
    round = models.IntegerField(default=1)
    attempts = models.IntegerField(default=0, help_text="within this round")
    queued_at = models.DateTimeField()
    next_attempt_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="what the mail server said last")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(invoice=None, note__isnull=False) | Q(invoice__isnull=False, note=None),
                name="a_mail_is_of_one_document",
            ),
            models.UniqueConstraint(fields=["invoice", "address"], name="one_mail_per_invoice_and_address"),
            models.UniqueConstraint(fields=["note", "address"], name="one_mail_per_note_and_address"),
        ]
        indexes = [models.Index(fields=["next_attempt_at"], condition=Q(status="pending"), name="mail_pending")]

    @property
    def document(self) -> Invoice | Note:
        """Return the invoice or note of the mail."""
        stored = self.invoice or self.note
        if stored is None:
            raise ValueError(f"mail {self.pk}: is of no document")
        return stored
