"""Charges: the amount each team owes for its usage, and why. Derived from usage, prices and owners; can be derived again."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import F, Q

from billing.approvals.models import OfKind, Proposal, Step
from pricing.rating import LineKey


class LineDimensions(models.Model):
    """Fields of `pricing.rating.LineKey` that distinguish lines, without team, platform and correction."""

    kind = models.CharField(max_length=16)
    cluster = models.CharField(max_length=512, blank=True)
    namespace = models.CharField(max_length=512, blank=True)
    consumer = models.CharField(max_length=512, blank=True)
    accelerator = models.CharField(max_length=512, blank=True)
    sku = models.CharField(max_length=512)
    token_class = models.CharField(max_length=32, blank=True)
    charge_period = models.CharField(max_length=7)
    unit = models.CharField(max_length=16)
    price_version = models.CharField(max_length=200)
    policy = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=32, blank=True)

    class Meta:
        abstract = True

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the fields of a key that every line has."""
        return tuple(field.name for field in LineDimensions._meta.get_fields())

    @classmethod
    def of(cls, key: LineKey) -> dict[str, str]:
        """Return these fields of a key."""
        return {name: getattr(key, name) for name in cls.names()}


class Charge(LineDimensions):
    """One priced sum of usage: the future invoice line, before rounding.

    `close_seq`: number of the close that billed it; `charge_period`: the month of the usage, an earlier month if the usage
    came late (`correction`).
    """

    close_seq = models.IntegerField()
    line_key = models.CharField(max_length=64, help_text="hash of everything that tells one line from another")
    team = models.CharField(max_length=64)
    platform = models.BooleanField(default=False)
    correction = models.BooleanField(default=False)
    usage_quantity = models.DecimalField(
        max_digits=40, decimal_places=12, help_text="device-microseconds x fraction, slice-microseconds, or tokens"
    )
    unit_price = models.DecimalField(max_digits=26, decimal_places=16)
    facility_kw = models.DecimalField(max_digits=12, decimal_places=6, null=True)

    class Meta:
        constraints = [
            # the names of a key are too long for an index, so its hash is unique
            models.UniqueConstraint(fields=["close_seq", "line_key"], name="one_charge_per_line"),
            models.CheckConstraint(condition=Q(usage_quantity__gt=0), name="charge_has_usage"),
        ]


class TokenLayout(models.Model):
    """Decision of a close for one team: `gathered` token lines combine all consumers per model and class.

    Decided once, by the month's own close, for every team that used tokens in it: late usage, corrections and proofs of
    the month keep it (ADR 0041).
    """

    close_seq = models.IntegerField()
    team = models.CharField(max_length=64)
    gathered = models.BooleanField()

    class Meta:
        ordering = ["close_seq", "team"]
        constraints = [models.UniqueConstraint(fields=["close_seq", "team"], name="one_token_layout_of_a_team_per_close")]

    def __str__(self) -> str:
        return f"{self.close_seq} {self.team}"


class EfficiencyVerdict(models.Model):
    """Stored verdict on a job, adjusted or neutral: the evidence of an efficiency line."""

    close_seq = models.IntegerField()
    team = models.CharField(max_length=64)
    cluster = models.CharField(max_length=512)
    namespace = models.CharField(max_length=512)
    job = models.CharField(max_length=2000)
    job_key = models.CharField(max_length=64)
    policy = models.CharField(max_length=200)
    gpu_seconds = models.DecimalField(max_digits=30, decimal_places=6)
    minutes = models.DecimalField(max_digits=20, decimal_places=6)
    coverage = models.DecimalField(max_digits=21, decimal_places=12)
    mfu = models.DecimalField(max_digits=21, decimal_places=20, null=True)
    hfu = models.DecimalField(max_digits=21, decimal_places=20, null=True)
    multiplier = models.DecimalField(max_digits=15, decimal_places=12)
    reason = models.CharField(max_length=32)
    workload_class = models.CharField(max_length=200, blank=True)
    shadow = models.BooleanField(default=False, help_text="judged and shown, but no money moved")
    effect = models.DecimalField(
        max_digits=20, decimal_places=2, default=0, help_text="what it changes (in shadow: would change), this job alone"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["close_seq", "team", "cluster", "namespace", "job_key", "policy"], name="one_verdict_per_job"
            )
        ]


class PoolCapacity(models.Model):
    """Capacity of a pool as a close saw it: capacity reported later changes no bill."""

    close_seq = models.IntegerField()
    cluster = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    capacity_us = models.DecimalField(max_digits=40, decimal_places=0, help_text="device-microseconds")

    class Meta:
        ordering = ["close_seq", "cluster", "accelerator"]
        constraints = [
            models.UniqueConstraint(fields=["close_seq", "cluster", "accelerator"], name="one_capacity_of_a_pool_per_close")
        ]


class IdleShare(models.Model):
    """A team's part of a pool's idle time in a closed month, billed or only shown."""

    close_seq = models.IntegerField()
    team = models.CharField(max_length=64)
    cluster = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    pool_idle_us = models.DecimalField(max_digits=40, decimal_places=12)
    idle_us = models.DecimalField(max_digits=40, decimal_places=0, help_text="device-microseconds")

    class Meta:
        ordering = ["cluster", "accelerator"]
        constraints = [
            models.UniqueConstraint(
                fields=["close_seq", "team", "cluster", "accelerator"], name="one_idle_share_of_a_team_per_pool"
            )
        ]


class PoolTime(models.Model):
    """Time of a pool in a closed month by outcome, in device-microseconds, without late usage."""

    close_seq = models.IntegerField()
    cluster = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    charged = models.DecimalField(max_digits=40, decimal_places=12)
    platform = models.DecimalField(max_digits=40, decimal_places=12)
    unowned = models.DecimalField(max_digits=40, decimal_places=12)
    unpriced = models.DecimalField(max_digits=40, decimal_places=12)

    class Meta:
        ordering = ["close_seq", "cluster", "accelerator"]
        constraints = [
            models.UniqueConstraint(fields=["close_seq", "cluster", "accelerator"], name="one_time_of_a_pool_per_close")
        ]


class RatingSnapshot(models.Model):
    """Cached result of the last rating of a month, and the fingerprint of its inputs (`rating.snapshots`).

    `close_seq`: close that was rated, none for an open month. `input_fingerprint`: the snapshot is valid while this is the
    same; of a closed month stored only if its charges followed, with the `names` of its usage. `size`: lines and verdicts,
    none if no result is stored; for a small month only the size is stored. `sha256`: of the whole result, by team.
    """

    month = models.CharField(max_length=7, unique=True)
    close_seq = models.IntegerField(null=True)
    input_fingerprint = models.CharField(max_length=64, blank=True)
    names = models.JSONField(null=True, help_text="[cluster, namespace] and [source, consumer] of the usage of a close")
    as_of = models.DateTimeField(null=True)
    took_ms = models.IntegerField(null=True)
    size = models.IntegerField(null=True)
    result = models.BinaryField(default=bytes, help_text="all but what is by team")
    sha256 = models.CharField(max_length=64, blank=True)
    beside = models.BinaryField(default=bytes, help_text="what pages show beside it")
    report = models.BinaryField(default=bytes, help_text="the period report; empty where nobody made one")
    report_as_of = models.DateTimeField(null=True)
    report_took_ms = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.month} as of {self.as_of}"


class TeamSnapshot(models.Model):
    """One team's part of a snapshot: charges and verdicts for its own pages, their sums for pages of many teams.

    `compared`: sums of as many days of the month before; empty unless the month was running.
    """

    snapshot = models.ForeignKey(RatingSnapshot, on_delete=models.CASCADE, related_name="teams")
    team = models.CharField(max_length=64)
    rated = models.BinaryField()
    sums = models.BinaryField()
    compared = models.BinaryField(default=bytes)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["snapshot", "team"], name="one_snapshot_per_team")]

    def __str__(self) -> str:
        return f"{self.snapshot_id} {self.team}"


class ChangeProposal(Proposal):
    """Proposal of a retroactive change; the teams concerned acknowledge it before the decision."""

    WORDS: ClassVar[Mapping[str, str]] = {"submitted": "proposed", "withdrawn": "rejected"}
    objects: ClassVar[OfKind[Self]] = OfKind("retroactive_change")

    class Meta:
        proxy = True

    @property
    def acknowledged(self) -> dict[str, dict[str, str]]:
        """Return who of each team, or for it, acknowledged the proposal, and when, by team code."""
        return {
            step.comment: {"by": step.actor, "at": step.at.isoformat()} for step in self._steps(Step.Action.NOTED)
        }


class RetroactiveChange(models.Model):
    """Correction of a price or an owner in closed time, or late samples that count after all.

    Facts of closed time are never overwritten: a change overrides them from `epoch` on, the number of closes made when
    it was approved, so that every close can be computed again from what it knew. Among changes of one fact the one with
    the higher `change_seq` counts.
    """

    class Kind(models.TextChoices):
        PRICE = "price", "prices"
        NAMESPACE = "namespace", "owner of a namespace"
        CONSUMER = "consumer", "owner of a consumer"
        EFFICIENCY = "efficiency", "efficiency samples that came late"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=64, unique=True)
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField()
    fact = models.JSONField(help_text="the prices, or the scope, name and team")
    last_sample = models.BigIntegerField(null=True, help_text="the last sample that was there when it was approved")
    evidence = models.TextField(blank=True)
    proposal = models.OneToOneField(ChangeProposal, on_delete=models.PROTECT, related_name="change")
    epoch = models.IntegerField(null=True)
    change_seq = models.IntegerField(null=True, unique=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(valid_from__lt=F("valid_until")), name="change_ends_after_it_starts"),
            models.CheckConstraint(
                condition=Q(epoch__isnull=False, change_seq__isnull=False) | Q(epoch=None, change_seq=None),
                name="approved_change_is_known_from_an_epoch",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    status = property(lambda self: self.proposal.word)
    reason = property(lambda self: self.proposal.reason)
    requested_by = property(lambda self: self.proposal.created_by)
    acknowledged = property(lambda self: self.proposal.acknowledged)
    approvers = property(lambda self: self.proposal.approvers)

    @property
    def terms(self) -> dict[str, Any]:
        """Return the proposed change, as its proposal and the audit log store it."""
        return {
            "kind": self.kind, "fact": self.fact, "evidence": self.evidence,
            "valid_from": self.valid_from.isoformat(), "valid_until": self.valid_until.isoformat(),
        }  # fmt: skip
