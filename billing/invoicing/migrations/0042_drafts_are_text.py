"""Drafts are kept as text: what the database made of them nobody ever asked it for."""

from django.db import migrations

import billing.invoicing.models.draft_text


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0041_meter_readings")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE invoicing_invoice ALTER COLUMN draft TYPE text USING draft::text",
                    "ALTER TABLE invoicing_invoice ALTER COLUMN draft TYPE jsonb USING draft::jsonb",
                )
            ],
            state_operations=[
                migrations.AlterField(
                    "invoice", "draft",
                    billing.invoicing.models.draft_text.DraftField(
                        help_text="everything the document will say but its number and its predecessor"
                    ),
                )
            ],
        )
    ]  # fmt: skip
