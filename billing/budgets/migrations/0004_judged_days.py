"""Last day that was searched for anomalies."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0003_wide_sums")]
    operations = [migrations.AddField("counteddays", "judged", models.DateField(null=True))]
