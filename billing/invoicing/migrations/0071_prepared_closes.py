"""Drafts of a close that is prepared, which are of no month yet.

The text of a document is kept as it is rather than compressed, in a third of the time of issuing a month of them.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0070_focus_sets")]
    operations = [
        migrations.CreateModel(
            name="PreparedClose",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ordinal", models.IntegerField(null=True, unique=True)),
                ("ready", models.BooleanField(default=False)),
                ("made_of", models.CharField(blank=True, max_length=64)),
                ("attempts", models.IntegerField(default=0)),
                ("tried_at", models.DateTimeField()),
                ("took_ms", models.IntegerField(default=0)),
                (
                    "period",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="prepared_close", to="invoicing.billingperiod"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(ready=False) | Q(ordinal__isnull=False) & ~Q(made_of=""),
                        name="ready_says_what_it_is_made_of",
                    )
                ],
            },
        ),
        migrations.AlterField(
            "invoice", "period",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="invoicing.billingperiod"
            ),
        ),
        migrations.AddField(
            "invoice", "prepared",
            models.ForeignKey(
                db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="drafts",
                to="invoicing.preparedclose",
            ),
        ),
        migrations.AddIndex(
            "invoice",
            models.Index(condition=Q(prepared__isnull=False), fields=["prepared"], name="invoice_prepared"),
        ),
        migrations.AddConstraint(
            "invoice",
            models.CheckConstraint(
                condition=Q(period__isnull=False, prepared=None) | Q(period=None, prepared__isnull=False, number=None),
                name="of_a_month_or_prepared",
            ),
        ),
        migrations.RunSQL(
            "ALTER TABLE invoicing_invoice ALTER COLUMN document SET STORAGE EXTERNAL",
            "ALTER TABLE invoicing_invoice ALTER COLUMN document SET STORAGE EXTENDED",
        ),
    ]  # fmt: skip
