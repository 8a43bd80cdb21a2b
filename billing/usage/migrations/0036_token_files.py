"""Which sources of tokens are fed by files, and how far."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0035_watched_since")]
    operations = [
        migrations.CreateModel(
            name="TokenFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512, unique=True)),
                ("until", models.DateTimeField()),
            ],
        ),
    ]
