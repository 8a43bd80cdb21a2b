from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0005_token_take"),
    ]

    operations = [
        migrations.AlterField(
            "quarantinedrecord", "reason",
            models.CharField(max_length=16, choices=[
                ("invalid", "breaks the contract"), ("conflict", "same key, other content"), ("future", "lies in the future"),
                ("paid_by_call", "has no tokens, but the gateway charged it"),
            ]),
        ),
    ]  # fmt: skip
