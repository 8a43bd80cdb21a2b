from django.db import migrations, models


class Migration(migrations.Migration):
    """Through which day the stored past is complete; of an existing one, through its last day with spending."""

    dependencies = [("budgets", "0010_freshness")]
    operations = [
        migrations.CreateModel(
            name="CountedDays",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("through", models.DateField()),
            ],
        ),
        migrations.RunSQL(
            "INSERT INTO budgets_counteddays (id, through)"
            " SELECT 1, max(day) FROM budgets_spendday HAVING max(day) IS NOT NULL",
            migrations.RunSQL.noop,
        ),
    ]
