from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0010_token_details"),
    ]

    operations = [
        migrations.CreateModel(
            name="ServiceTierRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512)),
                ("service_tier", models.CharField(max_length=512)),
                ("treat_as", models.CharField(max_length=512)),
                ("valid_from", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "service_tier", "valid_from"), name="one_tier_rule_per_instant"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("service_tier", "standard"), _negated=True), name="standard_needs_no_tier_rule"
                    ),
                ],
            },
        ),
        *sql_applied("billing.usage", "tier_rules"),
    ]
