"""A period is closed by a close that stands: its guard, which the next migration applies, asks for closes that stand."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("invoices", "0002_billing_mode"),
        ("usage", "0009_standing_closes"),
    ]

    operations: list[object] = []
