from django.db import migrations, models


class Migration(migrations.Migration):
    """Sums of as many days of the month before, beside what is kept of a running month."""

    dependencies = [("invoicing", "0042_drafts_are_text")]
    operations = [
        migrations.AddField(model_name="teampreview", name="compared", field=models.BinaryField(default=bytes)),
    ]
