from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0012_tags"),
    ]

    operations = [
        migrations.CreateModel(
            name="CapacityTypeRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(blank=True, max_length=512)),
                ("priority_class", models.CharField(blank=True, max_length=512)),
                ("queue", models.CharField(blank=True, max_length=512)),
                ("label", models.CharField(blank=True, max_length=1024)),
                ("tag", models.CharField(blank=True, max_length=1024)),
                ("capacity_type", models.CharField(max_length=512)),
                ("priority", models.IntegerField(default=0)),
                ("valid_from", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "namespace", "priority_class", "queue", "label", "tag", "valid_from"),
                        name="one_capacity_type_per_instant",
                    )
                ],
            },
        ),
        *sql_applied("billing.usage", "capacity_types"),
    ]
