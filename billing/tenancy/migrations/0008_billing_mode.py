"""Since when a team is charged belongs to the team; the table stays as and where `invoices` made it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0007_earlier_mails"), ("invoices", "0001_initial")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="BillingMode",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                        ),
                        ("from_month", models.CharField(max_length=7)),
                        (
                            "mode",
                            models.CharField(
                                choices=[("shadow", "shown, not charged"), ("chargeback", "charged")], max_length=16
                            ),
                        ),
                        ("reason", models.TextField()),
                        ("set_by", models.CharField(max_length=200)),
                        ("set_at", models.DateTimeField()),
                        (
                            "team",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="billing_modes",
                                to="tenancy.team",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "invoices_billingmode",
                        "ordering": ["team_id", "from_month"],
                        "constraints": [
                            models.UniqueConstraint(fields=("team", "from_month"), name="one_billing_mode_per_month")
                        ],
                    },
                )
            ]
        )
    ]
