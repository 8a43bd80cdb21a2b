"""A draft, its lines and its sums are written once."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("invoices", "0003_periods_and_closes"),
    ]

    operations = [*sql_applied("billing.invoices", "guards")]
