"""Periods, invoices with their lines, and number series."""

from django.db import models
from django.db.models import Q

from billing.invoices.models.draft_text import DraftField
from billing.rating.models import LineDimensions
from billing.tenancy.models import Team
from metering.intervals import Interval


class PeriodOpenError(ValueError):
    """Error of an open period in an operation that needs its close."""


class BillingPeriod(models.Model):
    """Billing month; its bounds are stored when it is first used and never computed again."""

    class Status(models.TextChoices):
        OPEN = "open", "open"
        CLOSING = "closing", "closing"
        CLOSED = "closed", "closed"

    month = models.CharField(max_length=7, unique=True)
    zone = models.CharField(max_length=64)
    start = models.DateTimeField()
    end = models.DateTimeField()
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.OPEN)
    close_seq = models.IntegerField(null=True, unique=True, help_text="number of the close; set with the cut-off")
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["month"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status="open", close_seq=None) | Q(~Q(status="open"), close_seq__isnull=False),
                name="closing_has_an_ordinal",
            )
        ]

    def __str__(self) -> str:
        return self.month

    @property
    def window(self) -> Interval:
        return Interval(self.start, self.end)

    @property
    def close_number(self) -> int:
        """Return the number of the close, also of one in progress.  Raises PeriodOpenError without one."""
        if self.close_seq is None:
            raise PeriodOpenError(f"period {self.month} is open: it has no close")
        return self.close_seq


class NumberSeries(models.Model):
    """Counter of one series of documents; locked inside the issuing transaction, so that no number is skipped."""

    class Kind(models.TextChoices):
        INVOICE = "invoice", "invoices"
        CREDIT = "credit", "credit notes"
        REBILL = "rebill", "rebills"

    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.INVOICE)
    issuer = models.CharField(max_length=64)
    fiscal_year = models.IntegerField()
    last_number = models.IntegerField(default=0)
    last_sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "issuer", "fiscal_year"], name="one_counter_per_series")]


class Invoice(models.Model):
    """Invoice of one team for one period: a draft until issued; from then on `document` is the invoice.

    A shadow invoice shows what a team would owe: it is never issued, numbered or posted. Later events of an issued invoice
    are in `DocumentEvent`.
    """

    class Status(models.TextChoices):
        DRAFT = "draft", "draft"
        PREVIEW = "preview", "shown to its team"
        APPROVED = "approved", "approved"
        ISSUED = "issued", "issued"
        VOID = "void", "void"

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="invoices")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="invoices")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.DRAFT)
    shadow = models.BooleanField(default=False)
    currency = models.CharField(max_length=3)
    total = models.DecimalField(max_digits=20, decimal_places=2)
    draft = DraftField(help_text="everything the document will say but its number and its predecessor")
    approved_by = models.CharField(max_length=200, blank=True)
    void_reason = models.TextField(blank=True)
    number = models.CharField(max_length=100, null=True, unique=True)
    fiscal_year = models.IntegerField(null=True)
    sequence = models.IntegerField(null=True)
    issuer = models.CharField(max_length=64)
    document = models.TextField(blank=True, help_text="canonical JSON, the bytes that the hash is of")
    sha256 = models.CharField(max_length=64, blank=True)
    previous_sha256 = models.CharField(max_length=64, blank=True)
    issued_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["period", "team", "shadow"], condition=~Q(status="void"), name="one_invoice_per_team_and_period"
            ),
            models.CheckConstraint(
                condition=Q(shadow=False) | Q(status__in=["preview", "void"]), name="a_shadow_is_only_shown"
            ),
            models.UniqueConstraint(fields=["issuer", "fiscal_year", "sequence"], name="one_invoice_per_number"),
            models.CheckConstraint(
                condition=Q(status="issued", number__isnull=False, issued_at__isnull=False) & ~Q(sha256="") & ~Q(document="")
                | Q(~Q(status="issued"), number=None, issued_at=None, sha256="", document=""),
                name="issued_means_numbered_and_hashed",
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"draft {self.period_id}/{self.team_id}"


class InvoiceLine(LineDimensions):
    """Line of an invoice, as its document states it."""

    # no index of its own: the unique constraint begins with it
    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines", db_index=False)
    position = models.IntegerField()
    correction = models.BooleanField(default=False)
    quantity = models.DecimalField(max_digits=30, decimal_places=6)
    unit_price = models.DecimalField(max_digits=26, decimal_places=16)
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    energy_kwh = models.DecimalField(max_digits=20, decimal_places=3, null=True)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["invoice", "position"], name="one_line_per_position")]


class InvoiceSums(models.Model):
    """Roll-ups of the lines of an invoice or a draft, for pages of all teams; written with the lines, and as immutable.

    `facets`: JSON of `LineRollup` (`billing.invoices.line_rollups`), without price version, policy, reason and month.
    """

    invoice = models.OneToOneField(Invoice, on_delete=models.CASCADE, primary_key=True, related_name="sums")
    gpu = models.DecimalField(max_digits=20, decimal_places=2)
    tokens = models.DecimalField(max_digits=20, decimal_places=2)
    other = models.DecimalField(max_digits=20, decimal_places=2, help_text="of all other kinds of lines")
    facets = models.TextField()
