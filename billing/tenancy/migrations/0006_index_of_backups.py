from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """When a backup was last taken and last proven is found without reading the audit log."""

    atomic = False
    dependencies = [("tenancy", "0005_persons")]
    operations = [
        AddIndexConcurrently(
            "auditentry",
            models.Index(
                fields=["action", "at"], name="audit_backups",
                condition=models.Q(action__startswith="backup_"),
            ),
        ),
    ]
