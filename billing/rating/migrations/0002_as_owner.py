from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("rating", "0001_initial"),
        ("tenancy", "0001_initial"),
        ("usage", "0001_initial"),
    ]

    operations = sql_applied("billing.rating", "as_owner")
