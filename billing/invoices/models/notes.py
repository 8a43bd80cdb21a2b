"""Corrections of issued documents, their notes, and events of documents after their issue."""

from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import Q

from billing.approvals.models import OfKind, Proposal
from billing.invoices.models.invoices import BillingPeriod, Invoice, InvoiceLine
from billing.rating.models import LineDimensions, RetroactiveChange
from billing.tenancy.models import Team


class CorrectionProposal(Proposal):
    """Proposal of a correction that a person wrote."""

    objects: ClassVar[OfKind[Self]] = OfKind("correction")

    class Meta:
        proxy = True


class Correction(models.Model):
    """Decision to correct issued documents: its credit notes and rebills are approved and issued together.

    `amount` is the sum of its credit notes, positive; it decides who may approve.
    """

    class Status(models.TextChoices):
        DRAFT = "draft", "draft"
        APPROVED = "approved", "approved"
        ISSUED = "issued", "issued"
        VOID = "void", "void"

    class Reason(models.TextChoices):
        PRICE = "price", "wrong price"
        QUANTITY = "quantity", "wrong quantity"
        OWNERSHIP = "ownership", "wrong team"
        MFU = "mfu", "wrong efficiency data"
        SLA = "sla", "fault of the platform"
        DUPLICATE = "duplicate", "billed twice"
        GOODWILL = "goodwill", "goodwill"
        WRITE_OFF = "write_off", "written off"

    status = models.CharField(max_length=16, choices=Status.choices, default=Status.DRAFT)
    reason_code = models.CharField(max_length=16, choices=Reason.choices)
    reason = models.TextField()
    evidence = models.TextField(blank=True, help_text="ticket, incident or page that shows the error")
    currency = models.CharField(max_length=3)
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    proposal = models.ForeignKey(
        Proposal, on_delete=models.PROTECT, related_name="corrections",
        help_text="of the correction, or of the change of closed time that it follows from",
    )  # fmt: skip
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True)
    decision = models.TextField(blank=True, help_text="why it was voided")
    change = models.OneToOneField(
        RetroactiveChange, null=True, on_delete=models.PROTECT, related_name="correction",
        help_text="the change of closed time that it follows from; none where a person wrote it",
    )  # fmt: skip
    period = models.ForeignKey(BillingPeriod, null=True, on_delete=models.PROTECT, related_name="corrections")
    issued_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="correction_has_a_reason"),
            models.CheckConstraint(
                condition=Q(status="issued", period__isnull=False, issued_at__isnull=False)
                | Q(~Q(status="issued"), period=None, issued_at=None),
                name="issued_correction_stands_in_a_period",
            ),
        ]

    requested_by = property(lambda self: self.proposal.created_by)
    requested_at = property(lambda self: self.proposal.created_at)
    approvers = property(lambda self: self.proposal.approvers)

    @property
    def terms(self) -> dict[str, Any]:
        """Return the content of the correction, with the total of each note, as stored in its proposal."""
        notes = self.notes.order_by("id").values_list("kind", "team__code", "total")
        return {
            "reason_code": self.reason_code, "reason": self.reason, "evidence": self.evidence, "currency": self.currency,
            "amount": str(self.amount), "notes": [[kind, team, str(total)] for kind, team, total in notes],
        }  # fmt: skip


class Note(models.Model):
    """Credit note, or rebill of credited lines. Once issued it never changes: `document` is the note."""

    class Kind(models.TextChoices):
        CREDIT = "credit", "credit note"
        REBILL = "rebill", "rebill"

    correction = models.ForeignKey(Correction, on_delete=models.PROTECT, related_name="notes")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="notes")
    invoice = models.ForeignKey(
        Invoice, null=True, on_delete=models.PROTECT, related_name="notes",
        help_text="the invoice that is corrected; none where the team had none",
    )  # fmt: skip
    currency = models.CharField(max_length=3)
    total = models.DecimalField(max_digits=20, decimal_places=2)
    draft = models.JSONField(help_text="everything the document will say but its period, number and predecessor")
    number = models.CharField(max_length=100, null=True, unique=True)
    fiscal_year = models.IntegerField(null=True)
    sequence = models.IntegerField(null=True)
    issuer = models.CharField(max_length=64)
    document = models.TextField(blank=True, help_text="canonical JSON, the bytes that the hash is of")
    sha256 = models.CharField(max_length=64, blank=True)
    previous_sha256 = models.CharField(max_length=64, blank=True)
    issued_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "issuer", "fiscal_year", "sequence"], name="one_note_per_number"),
            models.CheckConstraint(
                condition=Q(number__isnull=False, issued_at__isnull=False) & ~Q(sha256="") & ~Q(document="")
                | Q(number=None, issued_at=None, sha256="", document=""),
                name="issued_note_is_numbered_and_hashed",
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"{self.kind} draft {self.pk}"


class NoteLine(LineDimensions):
    """Line of a note, with the line that it credits; the database refuses to credit more than was charged.

    `close_seq` is the close that charged the usage first, `change_seq` the last change of closed time that its price and
    owner follow from. `usage_quantity` is in base units, as in the charge; null if only an amount is credited.
    """

    class Style(models.TextChoices):
        REVERSAL = "reversal", "the whole line, reversed"
        WITHDRAWAL = "withdrawal", "earlier credits of a reversed line, taken back"
        ALLOWANCE = "allowance", "an amount of the line"
        REBILL = "rebill", "charged instead"

    note = models.ForeignKey(Note, on_delete=models.PROTECT, related_name="lines")
    position = models.IntegerField()
    style = models.CharField(max_length=16, choices=Style.choices)
    invoice_line = models.ForeignKey(InvoiceLine, null=True, on_delete=models.PROTECT, related_name="credits")
    note_line = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="credits")
    close_seq = models.IntegerField()
    change_seq = models.IntegerField(default=0)
    quantity = models.DecimalField(max_digits=30, decimal_places=6, null=True)
    unit_price = models.DecimalField(max_digits=26, decimal_places=16, null=True)
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    usage_quantity = models.DecimalField(max_digits=40, decimal_places=12, null=True)
    facility_kw = models.DecimalField(max_digits=12, decimal_places=6, null=True)
    energy_kwh = models.DecimalField(max_digits=20, decimal_places=3, null=True)

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["note", "position"], name="one_note_line_per_position"),
            models.CheckConstraint(
                condition=Q(style="rebill", invoice_line=None, note_line=None)
                | Q(~Q(style="rebill"), invoice_line__isnull=False, note_line=None)
                | Q(~Q(style="rebill"), invoice_line=None, note_line__isnull=False),
                name="a_credit_names_its_line",
            ),
        ]


class DocumentEvent(models.Model):
    """Event of an issued document, which itself never changes: append-only."""

    class Kind(models.TextChoices):
        DISPUTED = "disputed", "a dispute was opened"
        DECIDED = "decided", "a dispute was decided"
        SETTLED = "settled", "posted to the ledger"

    invoice = models.ForeignKey(Invoice, null=True, on_delete=models.PROTECT, related_name="events")
    note = models.ForeignKey(Note, null=True, on_delete=models.PROTECT, related_name="events")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    reference = models.CharField(max_length=200, blank=True, help_text="posting in the ledger, or the dispute")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(invoice=None, note__isnull=False) | Q(invoice__isnull=False, note=None),
                name="an_event_is_of_one_document",
            ),
            models.UniqueConstraint(fields=["invoice"], condition=Q(kind="settled"), name="an_invoice_settles_once"),
            models.UniqueConstraint(fields=["note"], condition=Q(kind="settled"), name="a_note_settles_once"),
        ]
