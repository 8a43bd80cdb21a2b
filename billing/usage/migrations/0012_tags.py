from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0011_service_tier_rules"),
    ]

    operations = [*sql_applied("billing.usage", "token_tags")]
