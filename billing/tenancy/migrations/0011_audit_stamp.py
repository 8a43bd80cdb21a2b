"""The database stamps entries of the audit log with the instant, the transaction and the actor of the session."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0010_disputes_hold_nothing"),
    ]

    operations = [*sql_applied("billing.tenancy", "stamp")]
