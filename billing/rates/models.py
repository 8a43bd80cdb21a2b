"""Prices as dated facts: cost sheets, price versions, efficiency policies. Published rows never change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Self

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.approvals.models import OfKind, Proposal, Step, fact
from billing.tenancy.models import Team, ValidRange
from pricing.efficiency import SECONDS_PER_GPU_HOUR, Form, Metric


def one_at_a_time(name: str) -> ExclusionConstraint:
    """Return the constraint that at most one row of a table is in force at any instant."""
    return ExclusionConstraint(
        name=name, expressions=[(ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS)]
    )


class DatedPolicy(models.Model):
    """Dated policy with a name, in force in [valid_from, valid_until); one at a time."""

    name = models.CharField(max_length=200, unique=True)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ["valid_from"]

    def __str__(self) -> str:
        return self.name


class CostSheet(models.Model):
    """Cost of a GPU-hour, with the inputs it was computed from."""

    name = models.CharField(max_length=200, unique=True)
    inputs = models.JSONField()
    result = models.JSONField()

    def __str__(self) -> str:
        return self.name


class TokenCostSheet(models.Model):
    """Cost of 1M tokens of a model: the load test, its platform, and the split of its cost over the token classes.

    `inputs` holds the report in its own format with the terms it was read under; `result` the prices by class.
    """

    name = models.CharField(max_length=200, unique=True)
    model = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    gpus = models.IntegerField()
    engine = models.CharField(max_length=256)
    precision = models.CharField(max_length=256)
    method = models.CharField(max_length=32)
    inputs = models.JSONField()
    result = models.JSONField()

    def __str__(self) -> str:
        return self.name


class PriceDraft(Proposal):
    """Draft of a complete price list: written by its makers, approved by another person, which publishes it.

    `content` has the shape of an entry of `price_versions` in the set-up file; `sha256` covers the inputs of its prices.
    """

    objects: ClassVar[OfKind[Self]] = OfKind("price_list")

    class Meta:
        proxy = True

    name = property(lambda self: self.subject)
    currency = fact("currency")
    valid_from = fact("valid_from", datetime.fromisoformat)
    content = fact("content", dict)

    def __str__(self) -> str:
        return self.name

    @property
    def decided(self) -> Step | None:
        """Return the last approval or rejection of the current content; a withdrawal is no decision."""
        return next(reversed(self._steps(Step.Action.APPROVED, Step.Action.REJECTED)), None)

    @property
    def version_id(self) -> int | None:
        """Return the id of the published version, None before publication."""
        version = getattr(self, "version", None)
        return version.pk if version else None


class PriceVersion(models.Model):
    """Complete price list in force in [valid_from, valid_until)."""

    name = models.CharField(max_length=200, unique=True)
    currency = models.CharField(max_length=3)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(auto_now_add=True)
    published_by = models.CharField(max_length=200)
    sealed = models.BooleanField(default=False, help_text=_("set once all its prices are written; nothing changes after"))
    draft = models.OneToOneField(
        PriceDraft, null=True, blank=True, on_delete=models.PROTECT, related_name="version",
        help_text=_("the draft that it was; none where the set-up file declares it"),
    )  # fmt: skip

    class Meta:
        ordering = ["valid_from"]
        constraints = [one_at_a_time("one_price_version_at_a_time")]

    def __str__(self) -> str:
        return self.name


class GpuPrice(models.Model):
    """Price of an accelerator, or of a resource or slice profile that is its own SKU."""

    class Unit(models.TextChoices):
        GPU_HOURS = "GPU-Hours", "whole-device hours: quantity x device_fraction x hours"
        SLICE_HOURS = "Slice-Hours", "slice hours: quantity x hours"

    version = models.ForeignKey(PriceVersion, on_delete=models.CASCADE, related_name="gpu")
    accelerator = models.CharField(max_length=512, blank=True)
    resource = models.CharField(max_length=512, blank=True)
    unit = models.CharField(max_length=16, choices=Unit.choices, default=Unit.GPU_HOURS)
    price = models.DecimalField(max_digits=18, decimal_places=4)
    cost_sheet = models.ForeignKey(CostSheet, null=True, blank=True, on_delete=models.PROTECT)
    facility_kw = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "accelerator", "resource"], name="one_gpu_price_per_sku"),
            models.CheckConstraint(condition=Q(price__gte=0), name="gpu_price_is_not_negative"),
            models.CheckConstraint(condition=~Q(accelerator="", resource=""), name="gpu_price_names_a_sku"),
        ]


class TokenPrice(models.Model):
    """Price of one million tokens of one class of a model, `input@32769+` if prices depend on the length of the prompt."""

    version = models.ForeignKey(PriceVersion, on_delete=models.CASCADE, related_name="tokens")
    model = models.CharField(max_length=512)
    token_class = models.CharField(max_length=32)
    price = models.DecimalField(max_digits=18, decimal_places=4)
    cost_sheet = models.ForeignKey(TokenCostSheet, null=True, blank=True, on_delete=models.PROTECT)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "model", "token_class"], name="one_token_price_per_class"),
            models.CheckConstraint(condition=Q(price__gte=0), name="token_price_is_not_negative"),
        ]


class EfficiencyPolicy(DatedPolicy):
    """Efficiency policy: bands of HFU and MFU that change the price of a GPU-hour, in force in [valid_from, valid_until)."""

    hfu_below = models.DecimalField(max_digits=9, decimal_places=6)
    penalty = models.DecimalField(max_digits=9, decimal_places=6)
    mfu_above = models.DecimalField(max_digits=9, decimal_places=6)
    reward = models.DecimalField(max_digits=9, decimal_places=6)
    min_minutes = models.IntegerField()
    min_coverage = models.DecimalField(max_digits=9, decimal_places=6)
    min_gpu_seconds = models.BigIntegerField(default=SECONDS_PER_GPU_HOUR)
    form = models.CharField(max_length=16, choices=[(form.value, form.value) for form in Form], default=Form.BANDS.value)
    width = models.DecimalField(max_digits=9, decimal_places=6, default=Decimal("0.10"))
    shadow = models.BooleanField(default=False, help_text=_("judged and shown, but no money moves"))
    classes = models.JSONField(default=list, blank=True, help_text=_("bands of their own for some workloads"))
    unrewarded = ArrayField(models.CharField(max_length=64), default=list, blank=True, help_text=_("codes of teams"))
    gather_short = models.BooleanField(default=False)
    neutral_pool = models.BooleanField(default=False)
    penalise_on = models.CharField(
        max_length=8, choices=[(metric.value, metric.value) for metric in Metric], default=Metric.HFU.value,
        help_text=_("what hfu_below bounds"),
    )  # fmt: skip

    class Meta(DatedPolicy.Meta):
        verbose_name_plural = "efficiency policies"
        constraints = [one_at_a_time("one_efficiency_policy_at_a_time")]


class InterruptionPolicy(DatedPolicy):
    """Payers of allocations interrupted by preemption, eviction or the loss of a node in [valid_from, valid_until).

    `rules`: by end reason {"payer": "team" | "platform" | "cap", "hours"}; with "cap" the platform carries at most the last
    `hours` of the allocation, and the team the rest. Without a rule for the reason the team pays.
    """

    rules = models.JSONField()

    class Meta(DatedPolicy.Meta):
        constraints = [one_at_a_time("one_interruption_policy_at_a_time")]


class AllocationPolicy(DatedPolicy):
    """Billing rules of idle time and shared cost, with their split, for months that begin in [valid_from, valid_until).

    `rules`: {"idle": [{cluster, accelerator, price, method, shares}], "shared": [{name, amount, method, shares}]}.
    """

    rules = models.JSONField()

    class Meta(DatedPolicy.Meta):
        verbose_name_plural = "allocation policies"
        constraints = [one_at_a_time("one_allocation_policy_at_a_time")]


class CarbonFactors(models.Model):
    """Kilograms of CO2 per kWh at the meter of a cluster's building, in force in [valid_from, valid_until)."""

    cluster = models.CharField(max_length=512)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    location_kg_per_kwh = models.DecimalField(max_digits=9, decimal_places=6)
    market_kg_per_kwh = models.DecimalField(max_digits=9, decimal_places=6)
    source = models.CharField(max_length=500, help_text="where the figures come from")

    class Meta:
        ordering = ["cluster", "valid_from"]
        constraints = [
            ExclusionConstraint(
                name="one_carbon_factor_of_a_cluster_at_a_time",
                expressions=[
                    ("cluster", RangeOperators.EQUAL),
                    (ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(
                condition=Q(location_kg_per_kwh__gte=0, market_kg_per_kwh__gte=0), name="carbon_factor_is_not_negative"
            ),
        ]


class Commitment(models.Model):
    """Commitment of a team to pay for GPU-hours of an accelerator each month, used or not, in [valid_from, valid_until).

    A stored commitment never changes; it may end earlier. Those of one team and accelerator add up while they overlap; one
    without an end runs until another one without an end follows.
    """

    name = models.CharField(max_length=200, unique=True)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="commitments")
    accelerator = models.CharField(max_length=512)
    gpu_hours = models.DecimalField(max_digits=20, decimal_places=6, help_text="bought per month")
    price = models.DecimalField(max_digits=18, decimal_places=4, help_text="per GPU-hour")
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["team", "accelerator", "valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "accelerator"], condition=Q(valid_until=None), name="one_commitment_without_an_end"
            ),
            models.CheckConstraint(condition=Q(gpu_hours__gt=0), name="commitment_has_hours"),
            models.CheckConstraint(condition=Q(price__gt=0), name="commitment_has_a_price"),
        ]

    def __str__(self) -> str:
        return self.name


class CommitmentDraft(Proposal):
    """Proposal of terms: a new commitment, or (`ends`) the earlier end of a stored one.

    Another person approves it, which stores the commitment or its end; once decided it never changes.
    """

    WORDS: ClassVar[Mapping[str, str]] = {"submitted": "proposed"}
    objects: ClassVar[OfKind[Self]] = OfKind("commitment")

    class Meta:
        proxy = True

    name = property(lambda self: self.subject)
    requested_by = Proposal.created_by
    requested_at = property(lambda self: self.created_at)
    ends = fact("ends", bool)
    team_code = fact("team")
    accelerator = fact("accelerator")
    gpu_hours = fact("gpu_hours", Decimal)
    price = fact("price", Decimal)
    valid_from = fact("valid_from", datetime.fromisoformat)
    valid_until = fact("valid_until", datetime.fromisoformat)
    replaces: Sequence[str] = ()
    """Names of commitments that will end at its start, shown to the approver."""
    beside: Sequence[str] = ()
    """Names of commitments that overlap it and continue."""
    unlisted = False
    """True if the price list at its start has no price of the accelerator, so that no usage could use the hours."""

    @cached_property
    def team(self) -> Team:
        """Return the team that commits."""
        return Team.objects.get(code=self.team_code)
