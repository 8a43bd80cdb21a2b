"""Guards that let a close be added and withdrawn only with its period."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("closing", "0001_initial"),
        ("invoices", "0003_periods_and_closes"),
    ]

    operations = [*sql_applied("billing.closing", "guards")]
