import billing.tenancy.models
import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
from decimal import Decimal
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    initial = True

    dependencies = [
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
            name="PriceDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("currency", models.CharField(max_length=3)),
                ("valid_from", models.DateTimeField()),
                ("content", models.JSONField()),
                ("reason", models.TextField(blank=True, help_text="why prices change")),
                ("revision", models.IntegerField(default=1, help_text="counts every change of the list")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "being written"),
                            ("submitted", "waits for a second person"),
                            ("approved", "published"),
                            ("rejected", "sent back with a reason"),
                            ("withdrawn", "given up"),
                        ],
                        default="draft",
                        max_length=16,
                    ),
                ),
                (
                    "makers",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), size=None),
                ),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("submitted_by", models.CharField(blank=True, max_length=200)),
                ("submitted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "submitted_sha256",
                    models.CharField(blank=True, help_text="of the list and all inputs of its prices", max_length=64),
                ),
                ("decided_by", models.CharField(blank=True, max_length=200)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("decision_reason", models.TextField(blank=True)),
            ],
            options={
                "ordering": ["-id"],
            },
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
            },
        ),
        migrations.CreateModel(
            name="CommitmentDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("accelerator", models.CharField(max_length=512)),
                ("gpu_hours", models.DecimalField(decimal_places=6, max_digits=20)),
                ("price", models.DecimalField(decimal_places=4, max_digits=18)),
                ("valid_from", models.DateTimeField()),
                ("valid_until", models.DateTimeField(null=True)),
                ("reason", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("proposed", "waits for a second person"),
                            ("approved", "in force from its day on"),
                            ("rejected", "turned down"),
                            ("withdrawn", "given up"),
                        ],
                        default="proposed",
                        max_length=16,
                    ),
                ),
                ("requested_by", models.CharField(max_length=200)),
                ("requested_at", models.DateTimeField()),
                ("decided_by", models.CharField(blank=True, max_length=200)),
                ("decided_at", models.DateTimeField(null=True)),
                ("decision", models.TextField(blank=True)),
                (
                    "ends",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="ends", to="rates.commitment"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="commitment_drafts", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
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
            name="PriceDraftStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=200)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("created", "created"),
                            ("edited", "edited"),
                            ("submitted", "submitted"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                        ],
                        max_length=16,
                    ),
                ),
                ("revision", models.IntegerField()),
                ("reason", models.TextField(blank=True)),
                ("valid_from", models.DateTimeField()),
                ("content", models.JSONField()),
                (
                    "draft",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="steps", to="rates.pricedraft"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
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
            ],
            options={
                "ordering": ["valid_from"],
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[(billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&")],
                        name="one_price_version_at_a_time",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="pricedraft",
            name="version",
            field=models.OneToOneField(
                blank=True,
                help_text="what it became",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="draft",
                to="rates.priceversion",
            ),
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
        ),
        migrations.AddConstraint(
            model_name="commitment",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[
                    ("team", "="),
                    ("accelerator", "="),
                    (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                ],
                name="one_commitment_of_a_team_at_a_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitment",
            constraint=models.CheckConstraint(condition=models.Q(("gpu_hours__gt", 0)), name="commitment_has_hours"),
        ),
        migrations.AddConstraint(
            model_name="commitment",
            constraint=models.CheckConstraint(condition=models.Q(("price__gt", 0)), name="commitment_has_a_price"),
        ),
        migrations.AddConstraint(
            model_name="commitmentdraft",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "proposed")), fields=("name",), name="one_proposal_of_a_commitment_waits"
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentdraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "approved"), _negated=True),
                    models.Q(
                        django.db.models.lookups.Exact(
                            django.db.models.functions.text.Lower(django.db.models.functions.text.Trim("decided_by")),
                            django.db.models.functions.text.Lower(
                                django.db.models.functions.text.Trim(models.F("requested_by"))
                            ),
                        ),
                        _negated=True,
                    ),
                    _connector="OR",
                ),
                name="commitments_take_two_persons",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentdraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("decided_at", None), ("decided_by", ""), ("state", "proposed")),
                    models.Q(
                        models.Q(("state", "proposed"), _negated=True),
                        ("decided_at__isnull", False),
                        models.Q(("decided_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="a_decided_commitment_draft_is_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentdraft",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends", None), ("valid_until__isnull", False), _connector="OR"),
                name="an_end_has_its_instant",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentdraft",
            constraint=models.CheckConstraint(
                condition=models.Q(("gpu_hours__gt", 0), ("price__gt", 0)), name="proposed_terms_are_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="pricedraft",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "withdrawn"), _negated=True), fields=("name",), name="one_price_draft_of_a_name"
            ),
        ),
        migrations.AddConstraint(
            model_name="pricedraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "approved"), ("version__isnull", False)),
                    models.Q(models.Q(("state", "approved"), _negated=True), ("version", None)),
                    _connector="OR",
                ),
                name="an_approved_price_draft_is_published",
            ),
        ),
        migrations.AddConstraint(
            model_name="pricedraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state__in", ("submitted", "approved", "rejected")), _negated=True),
                    models.Q(
                        models.Q(("submitted_by", ""), _negated=True),
                        models.Q(("submitted_sha256", ""), _negated=True),
                        ("submitted_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="a_price_draft_is_decided_after_submission",
            ),
        ),
        migrations.AddConstraint(
            model_name="pricedraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state__in", ("approved", "rejected")), _negated=True),
                    models.Q(models.Q(("decided_by", ""), _negated=True), ("decided_at__isnull", False)),
                    _connector="OR",
                ),
                name="a_decision_on_prices_names_who",
            ),
        ),
        migrations.AddConstraint(
            model_name="pricedraft",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "rejected"), _negated=True),
                    models.Q(("decision_reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="a_rejection_of_prices_says_why",
            ),
        ),
        migrations.AddConstraint(
            model_name="gpuprice",
            constraint=models.UniqueConstraint(fields=("version", "accelerator", "resource"), name="one_gpu_price_per_sku"),
        ),
        migrations.AddConstraint(
            model_name="gpuprice",
            constraint=models.CheckConstraint(condition=models.Q(("price__gte", 0)), name="gpu_price_is_not_negative"),
        ),
        migrations.AddConstraint(
            model_name="gpuprice",
            constraint=models.CheckConstraint(
                condition=models.Q(("accelerator", ""), ("resource", ""), _negated=True), name="gpu_price_names_a_sku"
            ),
        ),
        migrations.AddConstraint(
            model_name="tokenprice",
            constraint=models.UniqueConstraint(fields=("version", "model", "token_class"), name="one_token_price_per_class"),
        ),
        migrations.AddConstraint(
            model_name="tokenprice",
            constraint=models.CheckConstraint(condition=models.Q(("price__gte", 0)), name="token_price_is_not_negative"),
        ),
        *sql_applied("billing.rates", "guards"),
    ]
