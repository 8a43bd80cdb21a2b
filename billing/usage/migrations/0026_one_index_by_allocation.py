"""The indexes on the allocation alone go: the unique ones begin with it, and answer the same."""

import django.db.models.deletion
from django.db import migrations, models


def of_allocation(name: str) -> models.ForeignKey:
    return models.ForeignKey(
        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name=name, to="usage.gpuallocation"
    )


class Migration(migrations.Migration):
    dependencies = [("usage", "0025_sampled_kinds")]
    operations = [
        migrations.AlterField("allocationspan", "allocation", of_allocation("spans")),
        migrations.AlterField("allocationend", "allocation", of_allocation("ends")),
    ]
