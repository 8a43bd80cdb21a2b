"""Tables of the close: waivers, blocked teams, reopenings, accruals, meter readings."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self

from django.db import models
from django.db.models import Q

from billing.approvals.models import OfKind, Proposal, fact
from billing.invoices.models import BillingPeriod


class ExceptionWaiver(models.Model):
    """Waiver of a blocking exception of a period, with a responsible person, until a day: then it blocks again."""

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
    """Team of a month whose charges could not be written: why, since when, and the amount at stake if known.

    The period stays in `closing` until closing it again has billed every one of them; then the row is deleted.
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


class PeriodReopening(Proposal):
    """Proposal to open a month again: a closed one, or one whose close blocks teams.

    `close_seq`: the close to withdraw; `closed_by` and `closed_at`: who had closed the month and when, none if the close
    blocked teams and never ended. Once approved: `drafts`, the number of voided drafts, and `last_draft`, the last
    one's id. The database opens no closed month without an approved one.
    """

    WORDS: ClassVar[Mapping[str, str]] = {"submitted": "requested", "withdrawn": "rejected"}
    objects: ClassVar[OfKind[Self]] = OfKind("reopening")

    class Meta:
        proxy = True

    month = property(lambda self: self.subject)
    status = Proposal.word
    requested_by = Proposal.created_by
    requested_at = property(lambda self: self.created_at)
    close_seq = fact("close_seq", int)
    closed_by = fact("closed_by")
    closed_at = fact("closed_at", datetime.fromisoformat)
    drafts = property(lambda self: self.outcome.get("drafts"))


class Accrual(models.Model):
    """One estimate of an open month. A later revision replaces it; none is ever changed."""

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
    """Energy that a cluster took in a month in kWh, at the building's meter. The last report counts; none is ever changed.

    `shared_kwh`: part of it that no device is charged with by plan: switches, storage, idle devices.
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
