"""Indexes by epoch: what was learned of months closed before is found without reading those months.

Spans are stored in the order of epochs, near enough for an index of block ranges, which costs a writer next to nothing.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("usage", "0017_token_days")]
    operations = [
        migrations.RunSQL("CREATE INDEX token_day_epoch ON token_day (epoch, day)", "DROP INDEX token_day_epoch"),
        migrations.AddIndex("allocationspan", BrinIndex(fields=["epoch"], name="span_epoch", pages_per_range=16)),
    ]
