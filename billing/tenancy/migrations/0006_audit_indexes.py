from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """The last backup, its last proof, and who made a token, are found without reading the audit log."""

    atomic = False
    dependencies = [("tenancy", "0005_persons")]
    operations = [
        AddIndexConcurrently(
            "auditentry",
            models.Index(fields=["action", "at"], name="audit_backups", condition=models.Q(action__startswith="backup_")),
        ),
        AddIndexConcurrently(
            "auditentry",
            models.Index(fields=["subject"], name="makers_of_tokens", condition=models.Q(action="api_token_create")),
        ),
    ]
