"""Guards that let charges and their evidence be written only while their period is being closed."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("rating", "0002_as_owner"),
        ("usage", "0009_standing_closes"),
    ]

    operations = [*sql_applied("billing.rating", "guards")]
