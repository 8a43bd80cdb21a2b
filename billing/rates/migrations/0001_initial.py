import billing.tenancy.models
import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.db.models.deletion
from decimal import Decimal
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("approvals", "0001_initial"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="CostSheet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("inputs", models.JSONField()),
                ("result", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="TokenCostSheet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("model", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("gpus", models.IntegerField()),
                ("engine", models.CharField(max_length=256)),
                ("precision", models.CharField(max_length=256)),
                ("method", models.CharField(max_length=32)),
                ("inputs", models.JSONField()),
                ("result", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="PriceDraft",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="CommitmentDraft",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="AllocationPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("rules", models.JSONField()),
            ],
            options={
                "verbose_name_plural": "allocation policies",
                "ordering": ["valid_from"],
                "abstract": False,
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[(billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&")],
                        name="one_allocation_policy_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="CarbonFactors",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("location_kg_per_kwh", models.DecimalField(decimal_places=6, max_digits=9)),
                ("market_kg_per_kwh", models.DecimalField(decimal_places=6, max_digits=9)),
                ("source", models.CharField(help_text="where the figures come from", max_length=500)),
            ],
            options={
                "ordering": ["cluster", "valid_from"],
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            ("cluster", "="),
                            (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                        ],
                        name="one_carbon_factor_of_a_cluster_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("location_kg_per_kwh__gte", 0), ("market_kg_per_kwh__gte", 0)),
                        name="carbon_factor_is_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EfficiencyPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("hfu_below", models.DecimalField(decimal_places=6, max_digits=9)),
                ("penalty", models.DecimalField(decimal_places=6, max_digits=9)),
                ("mfu_above", models.DecimalField(decimal_places=6, max_digits=9)),
                ("reward", models.DecimalField(decimal_places=6, max_digits=9)),
                ("min_minutes", models.IntegerField()),
                ("min_coverage", models.DecimalField(decimal_places=6, max_digits=9)),
                ("min_gpu_seconds", models.BigIntegerField(default=3600)),
                (
                    "form",
                    models.CharField(choices=[("bands", "bands"), ("linear", "linear")], default="bands", max_length=16),
                ),
                ("width", models.DecimalField(decimal_places=6, default=Decimal("0.10"), max_digits=9)),
                ("shadow", models.BooleanField(default=False, help_text="judged and shown, but no money moves")),
                ("classes", models.JSONField(blank=True, default=list, help_text="bands of their own for some workloads")),
                (
                    "unrewarded",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64),
                        blank=True,
                        default=list,
                        help_text="codes of teams",
                        size=None,
                    ),
                ),
                ("gather_short", models.BooleanField(default=False)),
                ("neutral_pool", models.BooleanField(default=False)),
                (
                    "penalise_on",
                    models.CharField(
                        choices=[("hfu", "hfu"), ("mfu", "mfu")],
                        default="hfu",
                        help_text="what hfu_below bounds",
                        max_length=8,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "efficiency policies",
                "ordering": ["valid_from"],
                "abstract": False,
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[(billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&")],
                        name="one_efficiency_policy_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InterruptionPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("rules", models.JSONField()),
            ],
            options={
                "ordering": ["valid_from"],
                "abstract": False,
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[(billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&")],
                        name="one_interruption_policy_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PriceVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("currency", models.CharField(max_length=3)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("published_at", models.DateTimeField(auto_now_add=True)),
                ("published_by", models.CharField(max_length=200)),
                (
                    "sealed",
                    models.BooleanField(
                        default=False, help_text="set once all its prices are written; nothing changes after"
                    ),
                ),
                (
                    "draft",
                    models.OneToOneField(
                        blank=True,
                        help_text="the draft that it was; none where the set-up file declares it",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="version",
                        to="rates.pricedraft",
                    ),
                ),
            ],
            options={
                "ordering": ["valid_from"],
            },
        ),
        migrations.CreateModel(
            name="Commitment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("accelerator", models.CharField(max_length=512)),
                ("gpu_hours", models.DecimalField(decimal_places=6, help_text="bought per month", max_digits=20)),
                ("price", models.DecimalField(decimal_places=4, help_text="per GPU-hour", max_digits=18)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(max_length=200)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="commitments", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["team", "accelerator", "valid_from"],
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            ("team", "="),
                            ("accelerator", "="),
                            (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                        ],
                        name="one_commitment_of_a_team_at_a_time",
                    ),
                    models.CheckConstraint(condition=models.Q(("gpu_hours__gt", 0)), name="commitment_has_hours"),
                    models.CheckConstraint(condition=models.Q(("price__gt", 0)), name="commitment_has_a_price"),
                ],
            },
        ),
        migrations.CreateModel(
            name="GpuPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("resource", models.CharField(blank=True, max_length=512)),
                (
                    "unit",
                    models.CharField(
                        choices=[
                            ("GPU-Hours", "whole-device hours: quantity x device_fraction x hours"),
                            ("Slice-Hours", "slice hours: quantity x hours"),
                        ],
                        default="GPU-Hours",
                        max_length=16,
                    ),
                ),
                ("price", models.DecimalField(decimal_places=4, max_digits=18)),
                ("facility_kw", models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True)),
                (
                    "cost_sheet",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="rates.costsheet"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="gpu", to="rates.priceversion"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("version", "accelerator", "resource"), name="one_gpu_price_per_sku"),
                    models.CheckConstraint(condition=models.Q(("price__gte", 0)), name="gpu_price_is_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(("accelerator", ""), ("resource", ""), _negated=True),
                        name="gpu_price_names_a_sku",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TokenPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(max_length=512)),
                ("token_class", models.CharField(max_length=32)),
                ("price", models.DecimalField(decimal_places=4, max_digits=18)),
                (
                    "cost_sheet",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="rates.tokencostsheet"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tokens", to="rates.priceversion"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("version", "model", "token_class"), name="one_token_price_per_class"),
                    models.CheckConstraint(condition=models.Q(("price__gte", 0)), name="token_price_is_not_negative"),
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="priceversion",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[(billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&")],
                name="one_price_version_at_a_time",
            ),
        ),
        *sql_applied("billing.rates", "guards"),
    ]
