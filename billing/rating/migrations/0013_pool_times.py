from django.db import migrations, models

FORWARD = """
CREATE TRIGGER seen_at_close_never_changes BEFORE UPDATE OR DELETE ON rating_pooltime
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('what a close saw of its pools never changes');
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON rating_pooltime
    FOR EACH STATEMENT EXECUTE FUNCTION suanpan_refuse('what a close saw of its pools is never emptied');
"""
REVERSE = """
DROP TRIGGER never_emptied ON rating_pooltime;
DROP TRIGGER seen_at_close_never_changes ON rating_pooltime;
"""


class Migration(migrations.Migration):
    """What became of the time of each pool, as a close saw it."""

    dependencies = [("rating", "0010_one_index_by_close"), ("tenancy", "0002_audit_is_append_only")]
    operations = [
        migrations.CreateModel(
            name="PoolTime",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("closing", models.IntegerField()),
                ("cluster", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("charged", models.DecimalField(decimal_places=12, max_digits=40)),
                ("platform", models.DecimalField(decimal_places=12, max_digits=40)),
                ("unowned", models.DecimalField(decimal_places=12, max_digits=40)),
                ("unpriced", models.DecimalField(decimal_places=12, max_digits=40)),
            ],
            options={
                "ordering": ["closing", "cluster", "accelerator"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("closing", "cluster", "accelerator"), name="one_time_of_a_pool_per_close"
                    )
                ],
            },
        ),
        migrations.RunSQL(FORWARD, REVERSE),
    ]
