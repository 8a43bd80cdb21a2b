import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0001_initial"),
        ("approvals", "0001_initial"),
        ("invoices", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="PeriodReopening",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("approvals.proposal",),
        ),
        migrations.CreateModel(
            name="Accrual",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("revision", models.IntegerField()),
                ("name", models.CharField(max_length=100, unique=True)),
                ("as_of", models.DateTimeField()),
                ("document", models.TextField(help_text="canonical JSON, the bytes that the hash is of")),
                ("sha256", models.CharField(max_length=64)),
                ("created_by", models.CharField(max_length=200)),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="accruals", to="invoices.billingperiod"
                    ),
                ),
            ],
            options={
                "ordering": ["period", "revision"],
                "constraints": [
                    models.UniqueConstraint(fields=("period", "revision"), name="one_accrual_per_revision"),
                    models.CheckConstraint(condition=models.Q(("revision__gte", 1)), name="accrual_revisions_start_at_1"),
                ],
            },
        ),
        migrations.CreateModel(
            name="BlockedTeam",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("team", models.CharField(max_length=64)),
                ("problem", models.TextField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=40, null=True)),
                ("held_at", models.DateTimeField()),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="held_teams", to="invoices.billingperiod"
                    ),
                ),
            ],
            options={
                "ordering": ["team"],
                "constraints": [models.UniqueConstraint(fields=("period", "team"), name="held_once_per_period")],
            },
        ),
        migrations.CreateModel(
            name="ExceptionWaiver",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=32)),
                ("subject", models.CharField(max_length=2000)),
                (
                    "quantity",
                    models.DecimalField(
                        decimal_places=12, help_text="how much was waived; more blocks again", max_digits=40
                    ),
                ),
                ("reason", models.TextField()),
                ("waived_by", models.CharField(max_length=200)),
                ("waived_at", models.DateTimeField(auto_now_add=True)),
                (
                    "expires_at",
                    models.DateTimeField(help_text="local midnight after its last day; none in waivers of old", null=True),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="waivers", to="invoices.billingperiod"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("period", "kind", "subject"), name="one_waiver_per_exception")
                ],
            },
        ),
        migrations.CreateModel(
            name="MeterReading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("metered_kwh", models.DecimalField(decimal_places=3, max_digits=20)),
                ("shared_kwh", models.DecimalField(decimal_places=3, default=0, max_digits=20)),
                ("source", models.CharField(help_text="which meter, which export", max_length=500)),
                ("told_by", models.CharField(max_length=200)),
                ("told_at", models.DateTimeField()),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="meter_readings",
                        to="invoices.billingperiod",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("metered_kwh__gt", 0), ("shared_kwh__gte", 0), ("shared_kwh__lte", models.F("metered_kwh"))
                        ),
                        name="a_meter_counts_forward",
                    )
                ],
            },
        ),
    ]
