"""A unit price of an efficiency line has as many decimals as its amount needs (ADR 0010)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0071_prepared_closes")]
    operations = [
        migrations.AlterField("invoiceline", "unit_price", models.DecimalField(decimal_places=16, max_digits=26)),
        migrations.AlterField("noteline", "unit_price", models.DecimalField(decimal_places=16, max_digits=26, null=True)),
    ]
