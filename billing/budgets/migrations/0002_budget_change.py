"""Proposals to change budgets, which a second person decides: a kind of proposal without a table of its own."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial"), ("budgets", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="BudgetChange",
            fields=[],
            options={"proxy": True, "indexes": [], "constraints": []},
            bases=("approvals.proposal",),
        ),
    ]
