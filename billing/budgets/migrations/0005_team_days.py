from django.db import migrations, models


class Migration(migrations.Migration):
    """The stored past of whole teams in one sum a day."""

    dependencies = [("budgets", "0004_cap_overrides")]
    operations = [
        migrations.CreateModel(
            name="TeamSpendDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("team", models.CharField(max_length=64)),
                ("amount", models.DecimalField(decimal_places=6, max_digits=24)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("team", "day"), name="one_sum_per_team_and_day")],
            },
        ),
        migrations.RunSQL(
            "INSERT INTO budgets_teamspendday (day, team, amount)"
            " SELECT day, team, sum(amount) FROM budgets_spendday GROUP BY day, team",
            migrations.RunSQL.noop,
        ),
    ]
