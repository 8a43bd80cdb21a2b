"""Disputes hold nothing off the ledger. The columns of their limits stay for a release that still reads them."""

from decimal import Decimal

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0009_cost_center_required")]
    operations = [
        migrations.AlterField(
            model_name="billingsetup",
            name="dispute_hold_share",
            field=models.DecimalField(
                max_digits=6, decimal_places=4, default=Decimal("0.0500"), db_default=Decimal("0.0500"),
                help_text="of a document that a dispute must exceed",
            ),
        ),
        migrations.AlterField(
            model_name="billingsetup",
            name="dispute_hold_amount",
            field=models.DecimalField(
                max_digits=20, decimal_places=2, default=Decimal("10000.00"), db_default=Decimal("10000.00"),
                help_text="that a dispute must exceed, too",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField("billingsetup", "dispute_hold_share"),
                migrations.RemoveField("billingsetup", "dispute_hold_amount"),
            ]
        ),
    ]  # fmt: skip
