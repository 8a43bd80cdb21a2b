"""Prices as dated facts: cost sheets, price versions, efficiency policies. Published rows never change."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.db import models
from django.db.models import Q

from billing.tenancy.models import ValidRange


class CostSheet(models.Model):
    """What a GPU-hour costs, and the inputs it was computed from."""

    name = models.CharField(max_length=200, unique=True)
    inputs = models.JSONField()
    result = models.JSONField()


class PriceVersion(models.Model):
    """The complete price list in force in [valid_from, valid_until)."""

    name = models.CharField(max_length=200, unique=True)
    currency = models.CharField(max_length=3)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(auto_now_add=True)
    published_by = models.CharField(max_length=200)
    sealed = models.BooleanField(default=False, help_text="set once all its prices are written; nothing changes after")

    class Meta:
        ordering = ["valid_from"]
        constraints = [
            ExclusionConstraint(
                name="one_price_version_at_a_time",
                expressions=[(ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS)],
            )
        ]


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
    """Price of one million tokens of one class of a model."""

    version = models.ForeignKey(PriceVersion, on_delete=models.CASCADE, related_name="tokens")
    model = models.CharField(max_length=512)
    token_class = models.CharField(max_length=32)
    price = models.DecimalField(max_digits=18, decimal_places=4)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "model", "token_class"], name="one_token_price_per_class"),
            models.CheckConstraint(condition=Q(price__gte=0), name="token_price_is_not_negative"),
        ]


class EfficiencyPolicy(models.Model):
    """Bands of HFU and MFU that change what a GPU-hour costs, in force in [valid_from, valid_until)."""

    name = models.CharField(max_length=200, unique=True)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    hfu_below = models.DecimalField(max_digits=9, decimal_places=6)
    penalty = models.DecimalField(max_digits=9, decimal_places=6)
    mfu_above = models.DecimalField(max_digits=9, decimal_places=6)
    reward = models.DecimalField(max_digits=9, decimal_places=6)
    min_minutes = models.IntegerField()
    min_coverage = models.DecimalField(max_digits=9, decimal_places=6)

    class Meta:
        ordering = ["valid_from"]
        constraints = [
            ExclusionConstraint(
                name="one_efficiency_policy_at_a_time",
                expressions=[(ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS)],
            )
        ]
