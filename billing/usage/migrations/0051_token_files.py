"""Which sources of tokens are fed by files, and how far."""

from django.db import migrations, models

from billing.tenancy.guards import changes_only, kept, refused_where

FORWARD = "how far files reach goes forward"


class Migration(migrations.Migration):
    dependencies = [("usage", "0050_watched_since")]
    operations = [
        migrations.CreateModel(
            name="TokenFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512, unique=True)),
                ("until", models.DateTimeField()),
            ],
        ),
        changes_only("usage_tokenfile", ("until",), FORWARD),
        refused_where("usage_tokenfile", "until_goes_forward", ("until",), "NEW.until < OLD.until", FORWARD),
        kept("usage_tokenfile", FORWARD),
    ]
