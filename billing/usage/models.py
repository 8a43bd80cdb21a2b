"""Tables of usage as reported. Token records live in plain tables of the first migration: their path has no ORM."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q

from billing.tenancy.models import ValidRange


class GpuAllocation(models.Model):
    """Devices allocated to one pod; the row follows the latest report, its revisions keep what each close knew."""

    allocation_id = models.CharField(max_length=512, unique=True)
    identity = models.BigIntegerField(help_text="hash of all that may not change between reports")
    cluster = models.CharField(max_length=512)
    namespace = models.CharField(max_length=512)
    pod = models.CharField(max_length=512)
    pod_uid = models.CharField(max_length=512)
    resource = models.CharField(max_length=512)
    quantity = models.IntegerField()
    device_fraction = models.DecimalField(max_digits=13, decimal_places=12)
    accelerator = models.CharField(max_length=512)
    node = models.CharField(max_length=1024, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    observed_until = models.DateTimeField()
    end_reason = models.CharField(max_length=1024, blank=True)
    workload_kind = models.CharField(max_length=1024, blank=True)
    workload_name = models.CharField(max_length=512, blank=True)
    queue = models.CharField(max_length=1024, blank=True)
    site = models.CharField(max_length=1024, blank=True)
    facts = models.JSONField(default=dict, help_text="the optional fields as reported")
    from_file = models.BooleanField(default=False)
    end_rule = models.CharField(max_length=1024, blank=True, default="")
    end_estimated = models.BooleanField(default=False, help_text="the end was not told, and lies within the bounds")
    end_earliest = models.DateTimeField(null=True)
    end_latest = models.DateTimeField(null=True)
    reconstructed_from = models.CharField(max_length=1024, blank=True, default="", help_text="not watched: from what it is")
    end_reconstructed = models.BooleanField(default=False, help_text="nobody watched the end")
    received_at = models.DateTimeField(auto_now_add=True)
    content_sha256 = models.BinaryField(max_length=32, help_text="of what was reported")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(quantity__gt=0), name="allocation_quantity_is_positive"),
            models.CheckConstraint(
                condition=Q(device_fraction__gt=0, device_fraction__lte=1), name="allocation_fraction_is_in_0_1"
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")), name="allocation_ends_after_start"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "pod_uid"], name="allocation_pod"),
            models.Index(fields=["cluster", "namespace", "started_at"], name="allocation_namespace"),
            models.Index(fields=["cluster", "workload_name"], name="allocation_workload"),
            models.Index(fields=["observed_until"], name="allocation_open", condition=Q(ended_at=None)),
            BrinIndex(fields=["observed_until"], name="allocation_seen", pages_per_range=16),
            models.Index(fields=["id"], name="allocation_reconstructed", condition=~Q(reconstructed_from="")),
        ]


class AllocationRevision(models.Model):
    """Piece [start, until) of an allocation, learned while `epoch` closes had been made.

    Revisions of one allocation follow each other without gap or overlap. A revision learned before a close belongs to the
    documents of that close; one learned later, also about an earlier time, belongs to the next.
    """

    allocation = models.ForeignKey(GpuAllocation, on_delete=models.PROTECT, related_name="spans", db_index=False)
    epoch = models.IntegerField()
    start = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["allocation", "epoch"], name="one_span_per_allocation_and_epoch"),
            models.CheckConstraint(condition=Q(until__gt=F("start")), name="span_is_not_empty"),
        ]
        indexes = [
            models.Index(fields=["until", "start"], name="span_time"),
            BrinIndex(fields=["epoch"], name="span_epoch", pages_per_range=16),
            models.Index(fields=["start"], name="span_start"),
        ]


class AllocationInterruption(models.Model):
    """End of an interrupted allocation as known while `epoch` closes had been made.

    Rows exist only for ends by INTERRUPTIONS and by a change of share, and for corrections of such ends: a close can always
    be rated again from the ends that it knew.
    """

    allocation = models.ForeignKey(GpuAllocation, on_delete=models.PROTECT, related_name="ends", db_index=False)
    epoch = models.IntegerField()
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=1024, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["allocation", "epoch"], name="one_end_per_allocation_and_epoch"),
        ]
        indexes = [models.Index(fields=["end_reason", "ended_at"], name="end_time")]


class UnknownShare(models.Model):
    """Reported allocation whose share of a device is unknown: its latest report, stored beside the ledger.

    It is open while `settled` is empty, and in no charge; once its share is known it enters the ledger as if it had just
    been reported.
    """

    class Settled(models.TextChoices):
        OPEN = "", "not known"
        KNOWN = "known", "taken into the ledger"
        NO_ACCELERATOR = "no accelerator", "is no accelerator"

    allocation_id = models.CharField(max_length=512, unique=True)
    cluster = models.CharField(max_length=512)
    namespace = models.CharField(max_length=512)
    pod = models.CharField(max_length=512)
    resource = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    quantity = models.IntegerField(help_text="units of the resource")
    why = models.CharField(max_length=1024, help_text="what is not known")
    started_at = models.DateTimeField()
    until = models.DateTimeField(help_text="the end, or how far it was seen")
    ended = models.BooleanField()
    billable_from = models.DateTimeField(help_text="the start, or the first instant after it that no close had billed")
    record = models.TextField(help_text="the latest report")
    reporter = models.CharField(max_length=512)
    door = models.CharField(max_length=64)
    settled = models.CharField(max_length=16, choices=Settled.choices, default=Settled.OPEN, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(quantity__gt=0), name="unknown_share_quantity_is_positive"),
            models.CheckConstraint(condition=Q(until__gte=F("started_at")), name="unknown_share_ends_after_start"),
        ]
        indexes = [
            models.Index(fields=["cluster", "resource"], name="unknown_share_open", condition=Q(settled="")),
        ]


class ShareDeclaration(models.Model):
    """Declared share of a device per unit of a resource, for resources that no agent can know; null: not an accelerator.

    `accelerator`: only for allocations reported with it, `why`: only for this reason of the unknown share; empty: for all.
    """

    cluster = models.CharField(max_length=512)
    resource = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512, blank=True)
    why = models.CharField(max_length=512, blank=True)
    device_fraction = models.DecimalField(max_digits=13, decimal_places=12, null=True)
    product = models.CharField(max_length=512, blank=True, help_text="the accelerator that it is; empty: as reported")
    declared_by = models.CharField(max_length=200)
    reason = models.TextField()
    declared_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "resource", "accelerator", "why"], name="one_share_declaration"),
            models.CheckConstraint(
                condition=Q(device_fraction=None) | Q(device_fraction__gt=0, device_fraction__lte=1),
                name="declared_fraction_is_in_0_1",
            ),
        ]


class ShareCorrection(models.Model):
    """Share of a device per unit of a resource from an instant on, whatever its agent reports, until a later correction.

    `accelerator`: only for allocations reported with it; empty: for all.
    """

    cluster = models.CharField(max_length=512)
    resource = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512, blank=True)
    device_fraction = models.DecimalField(max_digits=13, decimal_places=12)
    valid_from = models.DateTimeField()
    declared_by = models.CharField(max_length=200)
    reason = models.TextField()
    declared_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["cluster", "resource", "valid_from", "accelerator"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "resource", "accelerator", "valid_from"], name="one_share_correction_per_instant"
            ),
            models.CheckConstraint(
                condition=Q(device_fraction__gt=0, device_fraction__lte=1), name="corrected_fraction_is_in_0_1"
            ),
        ]


class AgentWatermark(models.Model):
    """Instant up to which an agent has reported everything it saw of its cluster."""

    agent = models.CharField(max_length=512)
    cluster = models.CharField(max_length=512)
    watermark = models.DateTimeField()
    watched_since = models.DateTimeField(null=True, help_text="when the first list of the agent's state was complete")
    reported_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "cluster"], name="one_watermark_per_agent")]


class AgentDiagnostic(models.Model):
    """Agent's message about what it could not meter: a pod that it cannot read, an unknown extended resource."""

    class Kind(models.TextChoices):
        PROBLEM = "problem", "cannot be metered"
        UNKNOWN = "unknown", "extended resource that nobody knows"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    agent = models.CharField(max_length=512)
    cluster = models.CharField(max_length=512)
    subject = models.CharField(max_length=512)
    text = models.CharField(max_length=512, blank=True)
    at = models.DateTimeField(help_text="when it was told first")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "agent", "cluster", "subject"], name="one_agent_note_per_subject")
        ]
        indexes = [models.Index(fields=["at"], name="agent_note_at")]


class CoverageNote(models.Model):
    """Note about [start, until) of a cluster: no agent watched it, or its usage was filled in afterwards."""

    class Kind(models.TextChoices):
        UNWATCHED = "unwatched", "nobody watched"
        FILLED = "filled", "pieced together afterwards"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    agent = models.CharField(max_length=512)
    cluster = models.CharField(max_length=512)
    start = models.DateTimeField()
    until = models.DateTimeField()
    reported_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "agent", "kind", "start", "until"], name="one_note_per_stretch"),
            models.CheckConstraint(condition=Q(until__gt=F("start")), name="note_is_not_empty"),
        ]


class ClusterScan(models.Model):
    """Comparison of a list of all pods that held devices at one instant with the allocations its agent knew then.

    Counted in units of extended resources; `differing` units are in one of the two only.
    """

    agent = models.CharField(max_length=512)
    cluster = models.CharField(max_length=512)
    at = models.DateTimeField()
    watched = models.IntegerField()
    scanned = models.IntegerField()
    differing = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "agent", "at"], name="one_scan_per_instant"),
            models.CheckConstraint(
                condition=Q(watched__gte=0, scanned__gte=0, differing__gte=0), name="scan_counts_are_not_negative"
            ),
        ]


class NodeCapacity(models.Model):
    """Units of a resource that a node offered in [start, until)."""

    cluster = models.CharField(max_length=512)
    node = models.CharField(max_length=512)
    accelerator = models.CharField(max_length=512)
    resource = models.CharField(max_length=512)
    quantity = models.IntegerField()
    start = models.DateTimeField()
    until = models.DateTimeField()
    condition = models.CharField(max_length=1024, blank=True)
    content_sha256 = models.BinaryField(max_length=32, help_text="of what was reported")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "node", "resource", "start"], name="one_capacity_per_start"),
            models.CheckConstraint(condition=Q(until__gte=F("start")), name="capacity_ends_after_start"),
        ]


class EfficiencySample(models.Model):
    """Measured MFU and HFU of a pod or workload in [start, end); null means not measured."""

    cluster = models.CharField(max_length=512)
    pod_uid = models.CharField(max_length=512, blank=True)
    workload = models.CharField(max_length=512, blank=True)
    start = models.DateTimeField()
    end = models.DateTimeField()
    gpu_seconds = models.DecimalField(max_digits=24, decimal_places=6)
    mfu = models.DecimalField(max_digits=21, decimal_places=20, null=True)
    hfu = models.DecimalField(max_digits=21, decimal_places=20, null=True)
    dtype = models.CharField(max_length=1024, blank=True)
    method = models.CharField(max_length=1024, blank=True)
    coverage = models.DecimalField(max_digits=21, decimal_places=20)
    reason = models.CharField(max_length=1024, blank=True, default="", help_text="why there is no score")
    workload_kind = models.CharField(max_length=512, blank=True, default="", db_default="", help_text="empty: of any kind")
    epoch = models.IntegerField()
    content_sha256 = models.BinaryField(max_length=32, help_text="of what was reported")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "pod_uid", "workload", "start", "end", "workload_kind"],
                name="one_efficiency_sample_per_interval",
            )
        ]


class AcceptedRows(models.Model):
    """Number of new rows of a kind stored by one transaction: it reveals removed rows that nothing refers to."""

    class Kind(models.TextChoices):
        ALLOCATION = "gpuallocation", "allocations"
        CAPACITY = "nodecapacity", "reports of capacity"
        SAMPLE = "efficiencysample", "efficiency samples"

    kind = models.CharField(max_length=32)
    rows = models.IntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(rows__gt=0), name="some_rows_were_accepted")]


class EngineReading(models.Model):
    """Token counters of one replica of an inference server: evidence beside the gateways' records, never billed."""

    source = models.CharField(max_length=512)
    replica = models.CharField(max_length=512)
    model = models.CharField(max_length=512)
    time = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    prompt_tokens = models.BigIntegerField()
    generation_tokens = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "replica", "model", "time"], name="one_reading_per_replica_and_time"),
            models.CheckConstraint(
                condition=Q(prompt_tokens__gte=0, generation_tokens__gte=0), name="engine_counters_are_not_negative"
            ),
        ]
        indexes = [models.Index(fields=["time"], name="engine_reading_time")]


class Close(models.Model):
    """Close number `close_seq` of the billing month [start, end); usage of the month learned later is late.

    A withdrawn close does not count: its month is open again, and the next close bills what it had billed. Its number stays
    used, so that rows learned since keep a later epoch. The close is always rated by the rules of number `rating_rules`
    (`billing.rating.rules`); 1.0.0 knows no others and leaves the number to the database.
    """

    close_seq = models.IntegerField(primary_key=True)
    start = models.DateTimeField()
    end = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)
    rating_rules = models.SmallIntegerField(db_default=1)

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="one_standing_close_at_a_time",
                expressions=[(ValidRange("start", "end"), RangeOperators.OVERLAPS)],
                condition=Q(withdrawn_at=None),
            )
        ]


class QuarantinedRecord(models.Model):
    """Reported record that could not enter the ledger, kept with the reason until a person resolves it."""

    class Reason(models.TextChoices):
        INVALID = "invalid", "breaks the contract"
        CONFLICT = "conflict", "same key, other content"
        FUTURE = "future", "lies in the future"
        PAID_BY_CALL = "paid_by_call", "has no tokens, but the gateway charged it"

    class Status(models.TextChoices):
        OPEN = "open", "open"
        DISMISSED = "dismissed", "dismissed with a reason"
        REPLAYED = "replayed", "taken into the ledger"

    door = models.CharField(max_length=64)
    reporter = models.CharField(max_length=512)
    reason = models.CharField(max_length=16, choices=Reason.choices)
    error = models.TextField()
    key = models.TextField(blank=True)
    record = models.TextField(help_text="the record as it came")
    digest = models.BinaryField(max_length=16, unique=True)
    at = models.DateTimeField(help_text="the record's own instant where it has one, else when it came")
    received_at = models.DateTimeField(auto_now_add=True)
    times_received = models.IntegerField(default=1)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.OPEN)
    resolved_by = models.CharField(max_length=200, blank=True)
    resolution = models.TextField(blank=True)
    resolved_at = models.DateTimeField(null=True)
    corrected = models.TextField(blank=True, help_text="the record as it was taken, where that differs")

    class Meta:
        indexes = [models.Index(fields=["status", "at"], name="quarantine_open")]


class ServiceTierRule(models.Model):
    """Rule that usage reported by a source in a service tier is billed as tier `treat_as`, until a later rule begins."""

    source = models.CharField(max_length=512)
    service_tier = models.CharField(max_length=512)
    treat_as = models.CharField(max_length=512)
    valid_from = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "service_tier", "valid_from"], name="one_tier_rule_per_instant"),
            models.CheckConstraint(condition=~Q(service_tier="standard"), name="standard_needs_no_tier_rule"),
        ]


class CapacityTypeRule(models.Model):
    """Rule that a cluster's allocations that meet all non-empty conditions have a capacity type.

    It applies until a later rule of the same conditions begins; `stated` restores the type that the node states.
    """

    cluster = models.CharField(max_length=512)
    namespace = models.CharField(max_length=512, blank=True)
    priority_class = models.CharField(max_length=512, blank=True)
    queue = models.CharField(max_length=512, blank=True)
    label = models.CharField(max_length=1024, blank=True)
    tag = models.CharField(max_length=1024, blank=True)
    capacity_type = models.CharField(max_length=512)
    priority = models.IntegerField(default=0)
    valid_from = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "namespace", "priority_class", "queue", "label", "tag", "valid_from"],
                name="one_capacity_type_per_instant",
            ),
        ]

    @property
    def conditions(self) -> dict[str, str]:
        """Return the patterns that an allocation must match, by field."""
        given = {
            "namespace": self.namespace, "priority_class": self.priority_class, "queue": self.queue, "label": self.label,
            "tag": self.tag,
        }  # fmt: skip
        return {name: pattern for name, pattern in given.items() if pattern}

    @property
    def subject(self) -> str:
        """Return the cluster and conditions as the display name of the rule."""
        return "/".join([self.cluster, *(f"{name} {pattern}" for name, pattern in self.conditions.items())])


class TokenFile(models.Model):
    """Source of tokens of which a file was imported, with the latest time of an imported record."""

    source = models.CharField(max_length=512, unique=True)
    until = models.DateTimeField()
