from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0011_audit_stamp"),
    ]

    operations = [
        migrations.CreateModel(
            name="TagRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(blank=True, max_length=512)),
                ("cluster", models.CharField(blank=True, max_length=512)),
                ("key", models.CharField(max_length=64)),
                ("origin", models.CharField(max_length=512)),
                ("longest", models.SmallIntegerField(help_text="characters of a value")),
                ("values_a_day", models.IntegerField(help_text="different values that are kept")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("source", "cluster", "key"), name="one_rule_per_tag"),
                ],
            },
        ),
    ]
