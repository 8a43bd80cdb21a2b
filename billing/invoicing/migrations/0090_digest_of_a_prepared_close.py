"""What a prepared close was rated from is kept with it, for the audit chain once it is adopted.

One that is prepared already has no digest: it is prepared anew.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0089_evidence_stays")]
    operations = [
        migrations.AddField(
            "preparedclose", "usage",
            models.JSONField(db_default={}, default=dict, help_text="the digest of the usage that was rated"),
        ),
        migrations.RunSQL(
            "UPDATE invoicing_preparedclose SET ready = false, made_of = '' WHERE ready", migrations.RunSQL.noop
        ),
    ]  # fmt: skip
