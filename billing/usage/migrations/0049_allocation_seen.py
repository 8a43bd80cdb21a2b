"""The allocations of a month are found without reading those of all years; an index of block ranges costs a writer little."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("usage", "0048_contents")]
    operations = [
        migrations.AddIndex(
            "gpuallocation", BrinIndex(fields=["observed_until"], name="allocation_seen", pages_per_range=16)
        ),
    ]
