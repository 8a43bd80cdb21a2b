import django.contrib.postgres.fields
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
            name="Proposal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=32)),
                ("subject", models.CharField(help_text="what it is about: a name, a month", max_length=300)),
                ("payload", models.JSONField(help_text="everything that is proposed")),
                ("reason", models.TextField(blank=True, help_text="why, for whoever decides")),
                ("revision", models.IntegerField(default=1, help_text="counts every change of what is proposed")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "being written"),
                            ("submitted", "waits for a second person"),
                            ("approved", "approved"),
                            ("rejected", "turned down"),
                            ("withdrawn", "given up"),
                        ],
                        default="draft",
                        max_length=16,
                    ),
                ),
                (
                    "makers",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        help_text="who wrote or submitted it, the first one first",
                        size=None,
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("sha256", models.CharField(blank=True, help_text="of all that was submitted", max_length=64)),
                ("outcome", models.JSONField(default=dict, help_text="what its approval did")),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["kind", "state"], name="proposals_of_a_kind")],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("makers__len__gte", 1)), name="a_proposal_has_a_maker"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state__in", ("submitted", "approved", "rejected")), _negated=True),
                            models.Q(models.Q(("sha256", ""), _negated=True), models.Q(("reason", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="a_proposal_is_decided_after_submission",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state", "approved"), ("outcome", {}), _connector="OR"),
                        name="only_an_approval_has_an_outcome",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Step",
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
                            ("noted", "noted"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                        ],
                        max_length=16,
                    ),
                ),
                ("comment", models.TextField(blank=True)),
                ("revision", models.IntegerField()),
                ("payload", models.JSONField()),
                (
                    "proposal",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="steps", to="approvals.proposal"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("action", "rejected"), _negated=True),
                            models.Q(("comment", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="a_rejection_says_why",
                    )
                ],
            },
        ),
        *sql_applied("billing.approvals", "guards"),
    ]
