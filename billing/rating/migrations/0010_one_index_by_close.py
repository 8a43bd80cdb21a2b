"""The indexes on the close alone go: the unique ones begin with it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rating", "0007_pools_at_close")]
    operations = [
        migrations.AlterField("charge", "closing", models.IntegerField()),
        migrations.AlterField("efficiencyverdict", "closing", models.IntegerField()),
    ]
