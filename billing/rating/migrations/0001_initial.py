import django.db.models.deletion
from django.db import migrations, models



class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0001_initial"),
        ("approvals", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RatingSnapshot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.CharField(max_length=7, unique=True)),
                ("close_seq", models.IntegerField(null=True)),
                ("input_fingerprint", models.CharField(blank=True, max_length=64)),
                (
                    "names",
                    models.JSONField(
                        help_text="[cluster, namespace] and [source, consumer] of the usage of a close", null=True
                    ),
                ),
                ("as_of", models.DateTimeField(null=True)),
                ("took_ms", models.IntegerField(null=True)),
                ("size", models.IntegerField(null=True)),
                ("result", models.BinaryField(default=bytes, help_text="all but what is by team")),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("beside", models.BinaryField(default=bytes, help_text="what pages show beside it")),
                ("report", models.BinaryField(default=bytes, help_text="the period report; empty where nobody made one")),
                ("report_as_of", models.DateTimeField(null=True)),
                ("report_took_ms", models.IntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ChangeProposal",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="Charge",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("cluster", models.CharField(blank=True, max_length=512)),
                ("namespace", models.CharField(blank=True, max_length=512)),
                ("consumer", models.CharField(blank=True, max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("sku", models.CharField(max_length=512)),
                ("token_class", models.CharField(blank=True, max_length=32)),
                ("charge_period", models.CharField(max_length=7)),
                ("unit", models.CharField(max_length=16)),
                ("price_version", models.CharField(max_length=200)),
                ("policy", models.CharField(blank=True, max_length=200)),
                ("reason", models.CharField(blank=True, max_length=32)),
                ("close_seq", models.IntegerField()),
                (
                    "line_key",
                    models.CharField(help_text="hash of everything that tells one line from another", max_length=64),
                ),
                ("team", models.CharField(max_length=64)),
                ("platform", models.BooleanField(default=False)),
                ("correction", models.BooleanField(default=False)),
                (
                    "usage_quantity",
                    models.DecimalField(
                        decimal_places=12,
                        help_text="device-microseconds x fraction, slice-microseconds, or tokens",
                        max_digits=40,
                    ),
                ),
                ("unit_price", models.DecimalField(decimal_places=16, max_digits=26)),
                ("facility_kw", models.DecimalField(decimal_places=6, max_digits=12, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("close_seq", "line_key"), name="one_charge_per_line"),
                    models.CheckConstraint(condition=models.Q(("usage_quantity__gt", 0)), name="charge_has_usage"),
                ],
            },
        ),
        migrations.CreateModel(
            name="EfficiencyVerdict",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("close_seq", models.IntegerField()),
                ("team", models.CharField(max_length=64)),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(max_length=512)),
                ("job", models.CharField(max_length=2000)),
                ("job_key", models.CharField(max_length=64)),
                ("policy", models.CharField(max_length=200)),
                ("gpu_seconds", models.DecimalField(decimal_places=6, max_digits=30)),
                ("minutes", models.DecimalField(decimal_places=6, max_digits=20)),
                ("coverage", models.DecimalField(decimal_places=12, max_digits=21)),
                ("mfu", models.DecimalField(decimal_places=20, max_digits=21, null=True)),
                ("hfu", models.DecimalField(decimal_places=20, max_digits=21, null=True)),
                ("multiplier", models.DecimalField(decimal_places=12, max_digits=15)),
                ("reason", models.CharField(max_length=32)),
                ("workload_class", models.CharField(blank=True, max_length=200)),
                ("shadow", models.BooleanField(default=False, help_text="judged and shown, but no money moved")),
                (
                    "effect",
                    models.DecimalField(
                        decimal_places=2,
                        default=0,
                        help_text="what it changes (in shadow: would change), this job alone",
                        max_digits=20,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("close_seq", "team", "cluster", "namespace", "job_key", "policy"), name="one_verdict_per_job"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("close_seq", models.IntegerField()),
                ("team", models.CharField(max_length=64)),
                ("cluster", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("pool_idle_us", models.DecimalField(decimal_places=12, max_digits=40)),
                ("idle_us", models.DecimalField(decimal_places=0, help_text="device-microseconds", max_digits=40)),
            ],
            options={
                "ordering": ["cluster", "accelerator"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("close_seq", "team", "cluster", "accelerator"), name="one_idle_share_of_a_team_per_pool"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolCapacity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("close_seq", models.IntegerField()),
                ("cluster", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("capacity_us", models.DecimalField(decimal_places=0, help_text="device-microseconds", max_digits=40)),
            ],
            options={
                "ordering": ["close_seq", "cluster", "accelerator"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("close_seq", "cluster", "accelerator"), name="one_capacity_of_a_pool_per_close"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolTime",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("close_seq", models.IntegerField()),
                ("cluster", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("charged", models.DecimalField(decimal_places=12, max_digits=40)),
                ("platform", models.DecimalField(decimal_places=12, max_digits=40)),
                ("unowned", models.DecimalField(decimal_places=12, max_digits=40)),
                ("unpriced", models.DecimalField(decimal_places=12, max_digits=40)),
            ],
            options={
                "ordering": ["close_seq", "cluster", "accelerator"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("close_seq", "cluster", "accelerator"), name="one_time_of_a_pool_per_close"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TeamSnapshot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("team", models.CharField(max_length=64)),
                ("rated", models.BinaryField()),
                ("sums", models.BinaryField()),
                ("compared", models.BinaryField(default=bytes)),
                (
                    "snapshot",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="teams", to="rating.ratingsnapshot"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("snapshot", "team"), name="one_snapshot_per_team")],
            },
        ),
        migrations.CreateModel(
            name="RetroactiveChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("price", "prices"),
                            ("namespace", "owner of a namespace"),
                            ("consumer", "owner of a consumer"),
                            ("efficiency", "efficiency samples that came late"),
                        ],
                        max_length=16,
                    ),
                ),
                ("name", models.CharField(max_length=64, unique=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField()),
                ("fact", models.JSONField(help_text="the prices, or the scope, name and team")),
                (
                    "last_sample",
                    models.BigIntegerField(help_text="the last sample that was there when it was approved", null=True),
                ),
                ("evidence", models.TextField(blank=True)),
                ("epoch", models.IntegerField(null=True)),
                ("change_seq", models.IntegerField(null=True, unique=True)),
                (
                    "proposal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="change", to="rating.changeproposal"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("valid_from__lt", models.F("valid_until"))), name="change_ends_after_it_starts"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("change_seq__isnull", False), ("epoch__isnull", False)),
                            models.Q(("change_seq", None), ("epoch", None)),
                            _connector="OR",
                        ),
                        name="approved_change_is_known_from_an_epoch",
                    ),
                ],
            },
        ),
    ]
