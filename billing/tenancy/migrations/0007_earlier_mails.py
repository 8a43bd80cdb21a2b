"""A person is known by every mail address that an account has had; those are found without reading the audit log."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("tenancy", "0006_audit_indexes"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),  # JSON from there on, as `persons.sql` reads it
    ]
    operations = [
        AddIndexConcurrently(
            "auditentry",
            models.Index(
                fields=["subject"], name="earlier_mails", condition=models.Q(subject__startswith="auth_user ")
            ),
        ),
        *sql_applied("billing.tenancy", "persons"),
    ]
