import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Lower

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProvisionedAccount",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="provisioned",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "external_id",
                    models.CharField(help_text="the identifier with which the person signs in", max_length=255, unique=True),
                ),
                ("user_name", models.CharField(max_length=255)),
                (
                    "active",
                    models.BooleanField(help_text="what the provider last said; empty: it deleted the account", null=True),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        Lower("user_name"),
                        name="a_user_name_of_the_provider_is_one_account",
                        condition=models.Q(active__isnull=False),
                    )
                ],
            },
        ),
        *sql_applied("billing.tenancy", "provisioning"),
    ]
