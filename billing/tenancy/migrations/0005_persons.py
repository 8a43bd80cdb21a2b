"""Behind a token of nobody stands whoever made it."""

from django.db import migrations

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0004_uses_and_sign_in")]

    operations = sql_applied("billing.tenancy", "persons")
