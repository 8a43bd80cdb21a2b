from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0006_paid_by_call"),
    ]

    operations = [
        migrations.AddField("close", "rating_rules", models.SmallIntegerField(db_default=1)),
    ]
