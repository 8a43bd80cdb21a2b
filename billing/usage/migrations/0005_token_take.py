from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0004_token_parts"),
    ]

    operations = sql_applied("billing.usage", "token_take")
