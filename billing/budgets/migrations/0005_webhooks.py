"""Webhooks: channels with events and a signing key, and the events that they get."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

KINDS = [
    ("closed", "month closed"), ("issued", "document issued"), ("budget", "alert of a budget"), ("anomaly", "unusual day"),
]  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("budgets", "0004_judged_days"), ("tenancy", "0016_dated_organisation")]
    operations = [
        migrations.AddField("channel", "events", models.JSONField(null=True)),
        migrations.AddField("channel", "secret", models.TextField(blank=True, db_default="")),
        migrations.CreateModel(
            name="WebhookEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=KINDS, max_length=16)),
                (
                    "subject",
                    models.CharField(
                        help_text="what happened: number of a document, close, or cause of an alert", max_length=200
                    ),
                ),
                (
                    "identity",
                    models.CharField(help_text="id that the receiver sees: the same at each attempt", max_length=64),
                ),
                ("body", models.TextField(help_text="JSON that is sent and signed")),
                (
                    "status",
                    models.CharField(choices=[("pending", "to be sent"), ("sent", "sent")], default="pending", max_length=16),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField()),
                ("last_error", models.CharField(blank=True, max_length=300)),
                ("sent_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="webhook_events", to="budgets.channel"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.team"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=Q(status="pending"), fields=["channel", "next_attempt_at"], name="webhook_event_pending"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("channel", "kind", "subject"), name="one_webhook_event_per_cause")
                ],
            },
        ),
    ]
