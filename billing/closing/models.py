"""Tables of the close: waivers, blocked teams, reopenings, accruals, meter readings."""

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Lower, Trim
from django.db.models.lookups import Exact

from billing.invoices.models import BillingPeriod


class ExceptionWaiver(models.Model):
    """A blocking exception of a period that somebody took responsibility for, until a day: then it holds the close again."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="waivers")
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=2000)
    quantity = models.DecimalField(max_digits=40, decimal_places=12, help_text="how much was waived; more blocks again")
    reason = models.TextField()
    waived_by = models.CharField(max_length=200)
    waived_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, help_text="local midnight after its last day; none in waivers of old")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["period", "kind", "subject"], name="one_waiver_per_exception")]


class BlockedTeam(models.Model):
    """One team of a month whose charges could not be written: why, since when, and what is at stake where it is known.

    The period stays in `closing` until closing it again has billed every one of them; then the row is gone.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="held_teams")
    team = models.CharField(max_length=64)
    problem = models.TextField()
    amount = models.DecimalField(max_digits=40, decimal_places=2, null=True)
    held_at = models.DateTimeField()

    class Meta:
        ordering = ["team"]
        constraints = [models.UniqueConstraint(fields=["period", "team"], name="held_once_per_period")]

    def __str__(self) -> str:
        return f"{self.period_id} {self.team}"


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


class MeterReading(models.Model):
    """KWh that a cluster took in a month, at the building's meter. The last one told counts; none is ever changed.

    `shared_kwh`: of it, what no device is charged with by plan: switches, storage, devices that nobody held.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="meter_readings")
    cluster = models.CharField(max_length=512)
    metered_kwh = models.DecimalField(max_digits=20, decimal_places=3)
    shared_kwh = models.DecimalField(max_digits=20, decimal_places=3, default=0)
    source = models.CharField(max_length=500, help_text="which meter, which export")
    told_by = models.CharField(max_length=200)
    told_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(metered_kwh__gt=0, shared_kwh__gte=0) & Q(shared_kwh__lte=models.F("metered_kwh")),
                name="a_meter_counts_forward",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster} {self.metered_kwh} kWh"
