from django.db import migrations, models

APPEND_ONLY = """
CREATE TRIGGER usage_enginereading_is_append_only BEFORE UPDATE OR DELETE ON usage_enginereading
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('what was counted is never changed');
"""
REVERSE = "DROP TRIGGER usage_enginereading_is_append_only ON usage_enginereading;"


class Migration(migrations.Migration):
    dependencies = [("usage", "0006_watchnote")]

    operations = [
        migrations.CreateModel(
            name="EngineReading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512)),
                ("replica", models.CharField(max_length=512)),
                ("model", models.CharField(max_length=512)),
                ("time", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("prompt_tokens", models.BigIntegerField()),
                ("generation_tokens", models.BigIntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["time"], name="engine_reading_time")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "replica", "model", "time"), name="one_reading_per_replica_and_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("generation_tokens__gte", 0), ("prompt_tokens__gte", 0)),
                        name="engine_counters_are_not_negative",
                    ),
                ],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, REVERSE),
    ]
