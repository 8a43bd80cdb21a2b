from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """The jobs of Slurm with several allocations are found without reading all of them."""

    atomic = False
    dependencies = [("usage", "0007_rating_rules")]
    operations = [
        AddIndexConcurrently(
            "gpuallocation",
            models.Index(
                fields=["cluster", "pod"], name="allocation_job", condition=models.Q(resource__startswith="slurm/")
            ),
        ),
    ]
