"""Since when somebody holds a role is found without reading the audit log."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("tenancy", "0016_dated_organisation")]
    operations = [
        AddIndexConcurrently(
            "auditentry",
            models.Index(
                fields=["subject"], name="writes_of_roles", condition=models.Q(subject__startswith="tenancy_membership ")
            ),
        ),
    ]
