import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("invoices", "0001_initial"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Dispute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("positions", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("currency", models.CharField(max_length=3)),
                (
                    "reason_code",
                    models.CharField(
                        choices=[
                            ("quantity", "wrong quantity"),
                            ("price", "wrong price"),
                            ("ownership", "not ours"),
                            ("mfu", "wrong efficiency data"),
                            ("sla", "fault of the platform"),
                            ("duplicate", "billed twice"),
                        ],
                        max_length=16,
                    ),
                ),
                ("statement", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("triaged", "triaged"),
                            ("evidence", "evidence asked for"),
                            ("escalated", "escalated"),
                            ("upheld", "upheld"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                        ],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("opened_by", models.CharField(max_length=200)),
                ("opened_at", models.DateTimeField()),
                ("triage_due", models.DateTimeField()),
                ("decision_due", models.DateTimeField()),
                ("decided_by", models.CharField(blank=True, max_length=200)),
                ("decided_at", models.DateTimeField(null=True)),
                ("decision", models.TextField(blank=True)),
                ("escalated_at", models.DateTimeField(null=True)),
                (
                    "correction",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="disputes",
                        to="invoices.correction",
                    ),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="disputes",
                        to="invoices.invoice",
                    ),
                ),
                (
                    "note",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="disputes", to="invoices.note"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="disputes", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="DisputeHoldback",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sequence", models.IntegerField(help_text="number of the holdback within its document, from 1")),
                ("kinds", models.JSONField(help_text="kind of line -> amount as text, adding up to `amount`")),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("reason", models.TextField()),
                ("placed_by", models.CharField(max_length=200)),
                ("placed_at", models.DateTimeField()),
                ("ended_by", models.CharField(blank=True, max_length=200)),
                ("ended_at", models.DateTimeField(null=True)),
                ("ended_reason", models.TextField(blank=True)),
                (
                    "dispute",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="hold", to="corrections.dispute"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="DisputeStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("actor", models.CharField(max_length=200)),
                ("at", models.DateTimeField()),
                ("text", models.TextField(blank=True)),
                (
                    "dispute",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="steps", to="corrections.dispute"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.AddConstraint(
            model_name="dispute",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("invoice", None), ("note__isnull", False)),
                    models.Q(("invoice__isnull", False), ("note", None)),
                    _connector="OR",
                ),
                name="a_dispute_is_of_one_document",
            ),
        ),
        migrations.AddConstraint(
            model_name="dispute",
            constraint=models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="a_dispute_has_an_amount"),
        ),
        migrations.AddConstraint(
            model_name="dispute",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("decided_at__isnull", False), ("status__in", ["upheld", "rejected", "withdrawn"])),
                    ("status__in", ["open", "triaged", "evidence", "escalated"]),
                    _connector="OR",
                ),
                name="a_decided_dispute_has_its_instant",
            ),
        ),
        migrations.AddConstraint(
            model_name="disputeholdback",
            constraint=models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="a_hold_has_an_amount"),
        ),
        migrations.AddConstraint(
            model_name="disputeholdback",
            constraint=models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="a_hold_has_a_reason"),
        ),
        migrations.AddConstraint(
            model_name="disputeholdback",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at", None), ("ended_by", ""), ("ended_reason", "")),
                    models.Q(
                        ("ended_at__isnull", False),
                        models.Q(("ended_by", ""), _negated=True),
                        models.Q(("ended_reason", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="an_ended_hold_is_whole",
            ),
        ),
    ]
