import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="FocusSet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.CharField(max_length=7)),
                ("data_set", models.CharField(max_length=32)),
                ("documents", models.CharField(max_length=64)),
                ("rows", models.IntegerField()),
                ("made_at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("month", "data_set"), name="one_focus_set_per_month")],
            },
        ),
        migrations.CreateModel(
            name="FocusPart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first", models.IntegerField()),
                ("content", models.BinaryField()),
                (
                    "focus_set",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="exports.focusset",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("focus_set", "first"), name="one_focus_part_per_row")],
            },
        ),
    ]
