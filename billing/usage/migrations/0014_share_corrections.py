from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0013_capacity_types"),
    ]

    operations = [
        migrations.CreateModel(
            name="ShareCorrection",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("device_fraction", models.DecimalField(decimal_places=12, max_digits=13)),
                ("valid_from", models.DateTimeField()),
                ("declared_by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("declared_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["cluster", "resource", "valid_from", "accelerator"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "resource", "accelerator", "valid_from"), name="one_share_correction_per_instant"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("device_fraction__gt", 0), ("device_fraction__lte", 1)),
                        name="corrected_fraction_is_in_0_1",
                    ),
                ],
            },
        ),
        *sql_applied("billing.usage", "share_corrections"),
    ]
