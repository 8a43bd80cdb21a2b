"""Wider columns for sums of budgets: no number of records can overflow them. More digits before the point rewrite no row."""

from django.db import migrations, models

COLUMNS = [
    ("alert", "amount", {"decimal_places": 2, "help_text": "what the value is compared with"}),
    ("alert", "value", {"decimal_places": 2}),
    ("budgetstatus", "spent", {"decimal_places": 2}),
    ("budgetstatus", "encumbered", {"decimal_places": 2}),
    ("budgetstatus", "forecast_p10", {"decimal_places": 2, "null": True}),
    ("budgetstatus", "forecast_p50", {"decimal_places": 2, "null": True}),
    ("budgetstatus", "forecast_p90", {"decimal_places": 2, "null": True}),
    ("costanomaly", "amount", {"decimal_places": 2}),
    ("costanomaly", "median", {"decimal_places": 2}),
    ("costanomaly", "mad", {"decimal_places": 2}),
    ("dailyspend", "amount", {"decimal_places": 6}),
    ("dailyteamspend", "amount", {"decimal_places": 6}),
]


class Migration(migrations.Migration):
    dependencies = [("budgets", "0002_budget_change")]
    operations = [
        migrations.AlterField(model, name, models.DecimalField(max_digits=40, **options)) for model, name, options in COLUMNS
    ]
