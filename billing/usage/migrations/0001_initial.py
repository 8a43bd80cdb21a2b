import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Close",
            fields=[
                ("close_seq", models.IntegerField(primary_key=True, serialize=False)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("withdrawn_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="TokenFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512, unique=True)),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="AcceptedRows",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=32)),
                ("rows", models.IntegerField()),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("rows__gt", 0)), name="some_rows_were_accepted")],
            },
        ),
        migrations.CreateModel(
            name="AgentDiagnostic",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("problem", "cannot be metered"), ("unknown", "extended resource that nobody knows")],
                        max_length=16,
                    ),
                ),
                ("agent", models.CharField(max_length=512)),
                ("cluster", models.CharField(max_length=512)),
                ("subject", models.CharField(max_length=512)),
                ("text", models.CharField(blank=True, max_length=512)),
                ("at", models.DateTimeField(help_text="when it was told first")),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="agent_note_at")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("kind", "agent", "cluster", "subject"), name="one_agent_note_per_subject"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AgentWatermark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("agent", models.CharField(max_length=512)),
                ("cluster", models.CharField(max_length=512)),
                ("watermark", models.DateTimeField()),
                (
                    "watched_since",
                    models.DateTimeField(help_text="when the first list of the agent's state was complete", null=True),
                ),
                ("reported_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("agent", "cluster"), name="one_watermark_per_agent")],
            },
        ),
        migrations.CreateModel(
            name="ClusterScan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("agent", models.CharField(max_length=512)),
                ("cluster", models.CharField(max_length=512)),
                ("at", models.DateTimeField()),
                ("watched", models.IntegerField()),
                ("scanned", models.IntegerField()),
                ("differing", models.IntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "agent", "at"), name="one_scan_per_instant"),
                    models.CheckConstraint(
                        condition=models.Q(("differing__gte", 0), ("scanned__gte", 0), ("watched__gte", 0)),
                        name="scan_counts_are_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CoverageNote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("unwatched", "nobody watched"), ("filled", "pieced together afterwards")], max_length=16
                    ),
                ),
                ("agent", models.CharField(max_length=512)),
                ("cluster", models.CharField(max_length=512)),
                ("start", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("reported_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "agent", "kind", "start", "until"), name="one_note_per_stretch"
                    ),
                    models.CheckConstraint(condition=models.Q(("until__gt", models.F("start"))), name="note_is_not_empty"),
                ],
            },
        ),
        migrations.CreateModel(
            name="EfficiencySample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("pod_uid", models.CharField(blank=True, max_length=512)),
                ("workload", models.CharField(blank=True, max_length=512)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("gpu_seconds", models.DecimalField(decimal_places=6, max_digits=24)),
                ("mfu", models.DecimalField(decimal_places=20, max_digits=21, null=True)),
                ("hfu", models.DecimalField(decimal_places=20, max_digits=21, null=True)),
                ("dtype", models.CharField(blank=True, max_length=1024)),
                ("method", models.CharField(blank=True, max_length=1024)),
                ("coverage", models.DecimalField(decimal_places=20, max_digits=21)),
                ("reason", models.CharField(blank=True, default="", help_text="why there is no score", max_length=1024)),
                (
                    "workload_kind",
                    models.CharField(blank=True, db_default="", default="", help_text="empty: of any kind", max_length=512),
                ),
                ("epoch", models.IntegerField()),
                ("content_sha256", models.BinaryField(help_text="of what was reported", max_length=32)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "pod_uid", "workload", "start", "end", "workload_kind"),
                        name="one_efficiency_sample_per_interval",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="EngineReading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512)),
                ("replica", models.CharField(max_length=512)),
                ("model", models.CharField(max_length=512)),
                ("time", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("prompt_tokens", models.BigIntegerField()),
                ("generation_tokens", models.BigIntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["time"], name="engine_reading_time")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "replica", "model", "time"), name="one_reading_per_replica_and_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("generation_tokens__gte", 0), ("prompt_tokens__gte", 0)),
                        name="engine_counters_are_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="GpuAllocation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("allocation_id", models.CharField(max_length=512, unique=True)),
                ("identity", models.BigIntegerField(help_text="hash of all that may not change between reports")),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(max_length=512)),
                ("pod", models.CharField(max_length=512)),
                ("pod_uid", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("quantity", models.IntegerField()),
                ("device_fraction", models.DecimalField(decimal_places=12, max_digits=13)),
                ("accelerator", models.CharField(max_length=512)),
                ("node", models.CharField(blank=True, max_length=1024)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("observed_until", models.DateTimeField()),
                ("end_reason", models.CharField(blank=True, max_length=1024)),
                ("workload_kind", models.CharField(blank=True, max_length=1024)),
                ("workload_name", models.CharField(blank=True, max_length=512)),
                ("queue", models.CharField(blank=True, max_length=1024)),
                ("site", models.CharField(blank=True, max_length=1024)),
                ("facts", models.JSONField(default=dict, help_text="the optional fields as reported")),
                ("from_file", models.BooleanField(default=False)),
                ("end_rule", models.CharField(blank=True, default="", max_length=1024)),
                (
                    "end_estimated",
                    models.BooleanField(default=False, help_text="the end was not told, and lies within the bounds"),
                ),
                ("end_earliest", models.DateTimeField(null=True)),
                ("end_latest", models.DateTimeField(null=True)),
                (
                    "reconstructed_from",
                    models.CharField(blank=True, default="", help_text="not watched: from what it is", max_length=1024),
                ),
                ("end_reconstructed", models.BooleanField(default=False, help_text="nobody watched the end")),
                ("received_at", models.DateTimeField(auto_now_add=True)),
                ("content_sha256", models.BinaryField(help_text="of what was reported", max_length=32)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["cluster", "pod_uid"], name="allocation_pod"),
                    models.Index(fields=["cluster", "namespace", "started_at"], name="allocation_namespace"),
                    models.Index(fields=["cluster", "workload_name"], name="allocation_workload"),
                    models.Index(condition=models.Q(("ended_at", None)), fields=["observed_until"], name="allocation_open"),
                    django.contrib.postgres.indexes.BrinIndex(
                        fields=["observed_until"], name="allocation_seen", pages_per_range=16
                    ),
                    models.Index(
                        condition=models.Q(("reconstructed_from", ""), _negated=True),
                        fields=["id"],
                        name="allocation_reconstructed",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("quantity__gt", 0)), name="allocation_quantity_is_positive"),
                    models.CheckConstraint(
                        condition=models.Q(("device_fraction__gt", 0), ("device_fraction__lte", 1)),
                        name="allocation_fraction_is_in_0_1",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended_at", None), ("ended_at__gte", models.F("started_at")), _connector="OR"),
                        name="allocation_ends_after_start",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeCapacity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("node", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("quantity", models.IntegerField()),
                ("start", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("condition", models.CharField(blank=True, max_length=1024)),
                ("content_sha256", models.BinaryField(help_text="of what was reported", max_length=32)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "node", "resource", "start"), name="one_capacity_per_start"),
                    models.CheckConstraint(
                        condition=models.Q(("until__gte", models.F("start"))), name="capacity_ends_after_start"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuarantinedRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("door", models.CharField(max_length=64)),
                ("reporter", models.CharField(max_length=512)),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("invalid", "breaks the contract"),
                            ("conflict", "same key, other content"),
                            ("future", "lies in the future"),
                        ],
                        max_length=16,
                    ),
                ),
                ("error", models.TextField()),
                ("key", models.TextField(blank=True)),
                ("record", models.TextField(help_text="the record as it came")),
                ("digest", models.BinaryField(max_length=16, unique=True)),
                ("at", models.DateTimeField(help_text="the record's own instant where it has one, else when it came")),
                ("received_at", models.DateTimeField(auto_now_add=True)),
                ("times_received", models.IntegerField(default=1)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("dismissed", "dismissed with a reason"),
                            ("replayed", "taken into the ledger"),
                        ],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("resolved_by", models.CharField(blank=True, max_length=200)),
                ("resolution", models.TextField(blank=True)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("corrected", models.TextField(blank=True, help_text="the record as it was taken, where that differs")),
            ],
            options={
                "indexes": [models.Index(fields=["status", "at"], name="quarantine_open")],
            },
        ),
        migrations.CreateModel(
            name="ShareDeclaration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("why", models.CharField(blank=True, max_length=512)),
                ("device_fraction", models.DecimalField(decimal_places=12, max_digits=13, null=True)),
                (
                    "product",
                    models.CharField(blank=True, help_text="the accelerator that it is; empty: as reported", max_length=512),
                ),
                ("declared_by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("declared_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "resource", "accelerator", "why"), name="one_share_declaration"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("device_fraction", None),
                            models.Q(("device_fraction__gt", 0), ("device_fraction__lte", 1)),
                            _connector="OR",
                        ),
                        name="declared_fraction_is_in_0_1",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="UnknownShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("allocation_id", models.CharField(max_length=512, unique=True)),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(max_length=512)),
                ("pod", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("quantity", models.IntegerField(help_text="units of the resource")),
                ("why", models.CharField(help_text="what is not known", max_length=1024)),
                ("started_at", models.DateTimeField()),
                ("until", models.DateTimeField(help_text="the end, or how far it was seen")),
                ("ended", models.BooleanField()),
                (
                    "billable_from",
                    models.DateTimeField(help_text="the start, or the first instant after it that no close had billed"),
                ),
                ("record", models.TextField(help_text="the latest report")),
                ("reporter", models.CharField(max_length=512)),
                ("door", models.CharField(max_length=64)),
                (
                    "settled",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "not known"),
                            ("known", "taken into the ledger"),
                            ("no accelerator", "is no accelerator"),
                        ],
                        default="",
                        max_length=16,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("settled", "")), fields=["cluster", "resource"], name="unknown_share_open"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("quantity__gt", 0)), name="unknown_share_quantity_is_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("until__gte", models.F("started_at"))), name="unknown_share_ends_after_start"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AllocationRevision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("epoch", models.IntegerField()),
                ("start", models.DateTimeField()),
                ("until", models.DateTimeField()),
                (
                    "allocation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="spans",
                        to="usage.gpuallocation",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["until", "start"], name="span_time"),
                    django.contrib.postgres.indexes.BrinIndex(fields=["epoch"], name="span_epoch", pages_per_range=16),
                    models.Index(fields=["start"], name="span_start"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("allocation", "epoch"), name="one_span_per_allocation_and_epoch"),
                    models.CheckConstraint(condition=models.Q(("until__gt", models.F("start"))), name="span_is_not_empty"),
                ],
            },
        ),
        migrations.CreateModel(
            name="AllocationInterruption",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("epoch", models.IntegerField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("end_reason", models.CharField(blank=True, max_length=1024)),
                (
                    "allocation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ends",
                        to="usage.gpuallocation",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["end_reason", "ended_at"], name="end_time")],
                "constraints": [
                    models.UniqueConstraint(fields=("allocation", "epoch"), name="one_end_per_allocation_and_epoch")
                ],
            },
        ),
        *sql_applied("billing.usage", "tokens", "guards"),
    ]
