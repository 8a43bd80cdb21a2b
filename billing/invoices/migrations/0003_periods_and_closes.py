"""A period is closed by a close that stands; a draft, its lines and its sums are written once."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("invoices", "0002_billing_mode"),
        ("usage", "0009_standing_closes"),
    ]

    operations = [*sql_applied("billing.invoices", "guards")]
