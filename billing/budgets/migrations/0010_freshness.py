from django.db import migrations, models


class Migration(migrations.Migration):
    """Through when usage is complete, of standings and alerts; why there is no forecast."""

    dependencies = [("budgets", "0005_team_days")]
    operations = [
        migrations.AddField("budgetstanding", "data_through", models.DateTimeField(
            null=True, help_text="None: unknown, or no usage was ever reported")),
        migrations.AddField("budgetstanding", "silent_since", models.DateTimeField(
            null=True, help_text="a reporter of the scope is silent since then")),
        migrations.AddField("budgetstanding", "forecast_withheld", models.CharField(
            blank=True, db_default="", default="", max_length=16)),
        migrations.AlterField("alert", "data_time", models.DateTimeField(
            help_text="through when the usage in the value is complete")),
        migrations.AlterField("alert", "kind", models.CharField(max_length=16, choices=[
            ("threshold", "threshold reached"), ("burn", "spends too fast"), ("anomaly", "unusual day"),
            ("silence", "metering is silent"),
        ])),
    ]  # fmt: skip
