"""Samples keep the kind of the workload that they measured; those without one measured whatever has the name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0020_first_and_open")]
    operations = [
        migrations.AddField(
            "efficiencysample", "workload_kind",
            models.CharField(blank=True, db_default="", default="", help_text="empty: of any kind", max_length=512),
        ),
        migrations.RemoveConstraint("efficiencysample", "one_efficiency_sample_per_interval"),
        migrations.AddConstraint(
            "efficiencysample",
            models.UniqueConstraint(
                fields=["cluster", "pod_uid", "workload", "start", "end", "workload_kind"],
                name="one_efficiency_sample_per_interval",
            ),
        ),
    ]  # fmt: skip
