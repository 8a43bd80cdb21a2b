"""An allocation may have ended within a month that was opened again: a close that was taken back has billed nothing."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0007_rating_rules"),
    ]

    operations = [*sql_applied("billing.usage", "revisions")]
