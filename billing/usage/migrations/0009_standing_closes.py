"""Of the windows that are closed no two overlap; every change of a close is in the audit log."""

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
from django.db import migrations, models

import billing.tenancy.models
from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0008_ends_in_reopened_months"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="close",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                condition=models.Q(("withdrawn_at", None)),
                expressions=[
                    (
                        billing.tenancy.models.ValidRange("start", "end"),
                        django.contrib.postgres.fields.ranges.RangeOperators.OVERLAPS,
                    )
                ],
                name="one_standing_close_at_a_time",
            ),
        ),
        *sql_applied("billing.usage", "closes"),
    ]
