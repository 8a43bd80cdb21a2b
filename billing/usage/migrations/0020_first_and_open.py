from django.db import migrations, models


class Migration(migrations.Migration):
    """The first usage of all, and what still runs, are found without reading every month there ever was."""

    dependencies = [("usage", "0019_short_outputs")]
    operations = [
        migrations.AddIndex(model_name="allocationspan", index=models.Index(fields=["start"], name="span_start")),
        migrations.AddIndex(
            model_name="gpuallocation",
            index=models.Index(fields=["observed_until"], name="allocation_open", condition=models.Q(ended_at=None)),
        ),
    ]
