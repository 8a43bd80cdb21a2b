import billing.tenancy.models
import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.db.models.deletion
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
            name="CountedDays",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("through", models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name="CapOverrideProposal",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="Channel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("url", models.TextField(blank=True, help_text="Apprise address; never shown, never logged")),
                ("mail", models.EmailField(blank=True, max_length=254)),
                ("digest_at", models.TimeField(blank=True, null=True)),
                ("quiet_from", models.TimeField(blank=True, null=True)),
                ("quiet_until", models.TimeField(blank=True, null=True)),
                ("language", models.CharField(blank=True, db_default="", max_length=16)),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="channels",
                        to="tenancy.team",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(blank=True, max_length=200)),
                (
                    "period",
                    models.CharField(
                        choices=[("month", "month"), ("quarter", "quarter"), ("plan", "plan with monthly amounts")],
                        max_length=16,
                    ),
                ),
                ("cluster", models.CharField(blank=True, max_length=128)),
                ("namespace", models.CharField(blank=True, max_length=128)),
                ("consumer", models.CharField(blank=True, max_length=128)),
                ("accelerator", models.CharField(blank=True, max_length=128)),
                ("model", models.CharField(blank=True, max_length=128)),
                (
                    "amount",
                    models.DecimalField(decimal_places=2, help_text="of one period; of a plan the sum", max_digits=20),
                ),
                ("revision", models.IntegerField(default=1)),
                (
                    "thresholds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), help_text="percent of the amount, actual spending", size=None
                    ),
                ),
                (
                    "forecast_thresholds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        default=list,
                        help_text="percent, forecast of the period",
                        size=None,
                    ),
                ),
                (
                    "commitment_thresholds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), default=list, help_text="percent, with running jobs", size=None
                    ),
                ),
                ("owner", models.CharField(blank=True, max_length=200)),
                (
                    "reservation",
                    models.DecimalField(
                        blank=True,
                        decimal_places=4,
                        help_text="held per checked request unless it says more",
                        max_digits=20,
                        null=True,
                    ),
                ),
                ("valid_from", models.DateTimeField(blank=True, null=True)),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="budgets", to="tenancy.team"
                    ),
                ),
                ("channels", models.ManyToManyField(blank=True, related_name="budgets", to="budgets.channel")),
            ],
            options={
                "ordering": ["team__code", "name", "id"],
            },
        ),
        migrations.CreateModel(
            name="CostAnomaly",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("sku", models.CharField(max_length=512)),
                ("day", models.DateField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("median", models.DecimalField(decimal_places=2, max_digits=20)),
                ("mad", models.DecimalField(decimal_places=2, max_digits=20)),
                ("z", models.DecimalField(decimal_places=3, max_digits=16)),
                ("basis", models.CharField(help_text="own or peers", max_length=16)),
                ("found_at", models.DateTimeField()),
                (
                    "feedback",
                    models.CharField(
                        blank=True,
                        choices=[("true", "was unusual"), ("false", "false alarm"), ("planned", "was planned")],
                        max_length=16,
                    ),
                ),
                ("feedback_note", models.CharField(blank=True, max_length=500)),
                ("feedback_by", models.CharField(blank=True, max_length=200)),
                ("feedback_at", models.DateTimeField(null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="findings", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-day", "-amount"],
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cause", models.CharField(max_length=200, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("threshold", "threshold reached"),
                            ("burn", "spends too fast"),
                            ("anomaly", "unusual day"),
                            ("silence", "metering is silent"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "level",
                    models.CharField(
                        choices=[("info", "information"), ("warning", "warning"), ("urgent", "urgent")], max_length=16
                    ),
                ),
                ("period", models.CharField(help_text="2026-10, 2026-Q4 or a day", max_length=10)),
                ("basis", models.CharField(help_text="actual, forecast, commitment; 6h or 3d; own or peers", max_length=16)),
                ("percent", models.IntegerField(null=True)),
                ("value", models.DecimalField(decimal_places=2, max_digits=20)),
                (
                    "amount",
                    models.DecimalField(decimal_places=2, help_text="what the value is compared with", max_digits=20),
                ),
                ("owner", models.CharField(blank=True, max_length=200)),
                ("data_time", models.DateTimeField(help_text="through when the usage in the value is complete")),
                ("fired_at", models.DateTimeField()),
                (
                    "team",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="tenancy.team"),
                ),
                (
                    "budget",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="budgets.budget"
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="budgets.costanomaly",
                    ),
                ),
            ],
            options={
                "ordering": ["-fired_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="DailySpend",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("team", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=16)),
                ("cluster", models.CharField(blank=True, max_length=512)),
                ("namespace", models.CharField(blank=True, max_length=512)),
                ("consumer", models.CharField(blank=True, max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("sku", models.CharField(max_length=512)),
                ("amount", models.DecimalField(decimal_places=6, max_digits=24)),
            ],
            options={
                "indexes": [models.Index(fields=["day", "team"], name="spend_day_team")],
            },
        ),
        migrations.CreateModel(
            name="DailyTeamSpend",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("team", models.CharField(max_length=64)),
                ("amount", models.DecimalField(decimal_places=6, max_digits=24)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("team", "day"), name="one_sum_per_team_and_day")],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "to be sent"), ("sent", "sent")], default="pending", max_length=16
                    ),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField()),
                ("last_error", models.CharField(blank=True, max_length=300)),
                ("sent_at", models.DateTimeField(null=True)),
                (
                    "alert",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="budgets.alert"
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="budgets.channel"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Mute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("reason", models.CharField(max_length=500)),
                ("by", models.CharField(max_length=200)),
                (
                    "budget",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mutes",
                        to="budgets.budget",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="mutes", to="tenancy.team"),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PlanAmount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.CharField(max_length=7)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                (
                    "budget",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="plan", to="budgets.budget"),
                ),
            ],
            options={
                "ordering": ["month"],
            },
        ),
        migrations.CreateModel(
            name="CapOverride",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("amount", models.DecimalField(decimal_places=2, help_text="by which the cap is raised", max_digits=20)),
                ("until", models.DateTimeField()),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="overrides", to="budgets.budget"
                    ),
                ),
                (
                    "proposal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="override",
                        to="budgets.capoverrideproposal",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="BudgetAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("percent", models.IntegerField()),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("notify", "notify"),
                            ("require_approver", "require_approver"),
                            ("lower_priority", "lower_priority"),
                            ("rate_limit", "rate_limit"),
                            ("cap", "cap"),
                        ],
                        max_length=32,
                    ),
                ),
                ("tokens_per_minute", models.BigIntegerField(blank=True, null=True)),
                ("floor_tokens_per_minute", models.BigIntegerField(blank=True, null=True)),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ladder", to="budgets.budget"
                    ),
                ),
            ],
            options={
                "ordering": ["percent", "action"],
                "constraints": [models.UniqueConstraint(fields=("budget", "action"), name="one_rung_per_action")],
            },
        ),
        migrations.CreateModel(
            name="BudgetStatus",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("period", models.CharField(help_text="2026-10 or 2026-Q4", max_length=7)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("spent", models.DecimalField(decimal_places=2, max_digits=20)),
                ("encumbered", models.DecimalField(decimal_places=2, max_digits=20)),
                ("as_of", models.DateTimeField()),
                ("generation", models.BigIntegerField()),
                ("forecast_method", models.CharField(blank=True, max_length=16)),
                ("forecast_p10", models.DecimalField(decimal_places=2, max_digits=20, null=True)),
                ("forecast_p50", models.DecimalField(decimal_places=2, max_digits=20, null=True)),
                ("forecast_p90", models.DecimalField(decimal_places=2, max_digits=20, null=True)),
                ("forecast_errors", models.JSONField(default=dict, help_text="back-tested error by method, ratio as text")),
                ("forecast_windows", models.IntegerField(default=0)),
                ("forecast_at", models.DateTimeField(null=True)),
                ("forecast_withheld", models.CharField(blank=True, db_default="", default="", max_length=16)),
                ("data_through", models.DateTimeField(help_text="None: unknown, or no usage was ever reported", null=True)),
                ("silent_since", models.DateTimeField(help_text="a reporter of the scope is silent since then", null=True)),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="standings", to="budgets.budget"
                    ),
                ),
            ],
            options={
                "ordering": ["-start"],
                "constraints": [models.UniqueConstraint(fields=("budget", "period"), name="one_standing_per_period")],
            },
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("url", ""), models.Q(("mail", ""), _negated=True)),
                    models.Q(models.Q(("url", ""), _negated=True), ("mail", "")),
                    _connector="OR",
                ),
                name="channel_is_an_address_or_a_mail",
            ),
        ),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("quiet_from", None), ("quiet_until", None)),
                    models.Q(("quiet_from__isnull", False), ("quiet_until__isnull", False)),
                    _connector="OR",
                ),
                name="quiet_hours_begin_and_end",
            ),
        ),
        migrations.AddConstraint(
            model_name="budget",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[
                    ("team", "="),
                    ("period", "="),
                    ("cluster", "="),
                    ("namespace", "="),
                    ("consumer", "="),
                    ("accelerator", "="),
                    ("model", "="),
                    (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                ],
                name="one_budget_per_scope_and_period_at_a_time",
            ),
        ),
        migrations.AddConstraint(
            model_name="budget",
            constraint=models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="budget_is_positive"),
        ),
        migrations.AddConstraint(
            model_name="budget",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("valid_from", None), ("valid_until", None), ("valid_from__lt", models.F("valid_until")), _connector="OR"
                ),
                name="budget_ends_after_it_starts",
            ),
        ),
        migrations.AddConstraint(
            model_name="costanomaly",
            constraint=models.UniqueConstraint(fields=("team", "kind", "sku", "day"), name="one_finding_per_day"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["channel", "next_attempt_at"], name="delivery_pending"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(fields=("alert", "channel"), name="one_delivery_per_alert_and_channel"),
        ),
        migrations.AddConstraint(
            model_name="mute",
            constraint=models.CheckConstraint(
                condition=models.Q(("since__lt", models.F("until"))), name="mute_ends_after_it_starts"
            ),
        ),
        migrations.AddConstraint(
            model_name="planamount",
            constraint=models.UniqueConstraint(fields=("budget", "month"), name="one_plan_amount_per_month"),
        ),
        migrations.AddConstraint(
            model_name="planamount",
            constraint=models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="plan_amount_is_positive"),
        ),
        migrations.AddConstraint(
            model_name="capoverride",
            constraint=models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="override_raises_the_cap"),
        ),
        *sql_applied("billing.budgets", "refresh"),
    ]
