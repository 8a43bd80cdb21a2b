from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rates", "0001_initial"),
    ]

    operations = [
        migrations.RemoveConstraint("commitment", "one_commitment_of_a_team_at_a_time"),
        migrations.AddConstraint(
            "commitment",
            models.UniqueConstraint(
                fields=["team", "accelerator"], condition=models.Q(("valid_until", None)),
                name="one_commitment_without_an_end",
            ),
        ),
    ]
