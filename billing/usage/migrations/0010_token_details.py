from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0009_standing_closes"),
    ]

    operations = [*sql_applied("billing.usage", "token_details")]
