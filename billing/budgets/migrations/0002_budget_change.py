"""Changes of budgets that wait for a second person: a kind of proposal, no table of its own."""

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
