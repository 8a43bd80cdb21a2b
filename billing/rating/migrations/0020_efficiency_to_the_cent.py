"""Efficiency is billed to the cent from the next close on (ADR 0010); closes that were made are rated by their own rule.

An installation without closes has no row: every close of it follows the rule.
"""

from django.db import migrations, models

CLOSES_SO_FAR = """
INSERT INTO rating_ratingrule (name, from_closing)
SELECT 'efficiency-to-the-cent', max(ordinal) + 1 FROM usage_closedwindow HAVING count(*) > 0;
CREATE TRIGGER rating_rule_stays BEFORE UPDATE OR DELETE ON rating_ratingrule
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('by which rule a close was rated stays');
"""
NO_RULE = """
DROP TRIGGER rating_rule_stays ON rating_ratingrule;
DELETE FROM rating_ratingrule;
"""


class Migration(migrations.Migration):
    dependencies = [("rating", "0014_prepared_closes"), ("usage", "0027_prepared_closes"), ("tenancy", "0003_audit_chain")]
    operations = [
        migrations.CreateModel(
            name="RatingRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        choices=[("efficiency-to-the-cent", "efficiency billed to the cent (ADR 0010)")],
                        max_length=64,
                        unique=True,
                    ),
                ),
                ("from_closing", models.IntegerField()),
            ],
        ),
        migrations.AlterField("charge", "unit_price", models.DecimalField(decimal_places=16, max_digits=26)),
        migrations.AlterField("efficiencyverdict", "multiplier", models.DecimalField(decimal_places=12, max_digits=15)),
        migrations.RunSQL(CLOSES_SO_FAR, NO_RULE),
    ]
