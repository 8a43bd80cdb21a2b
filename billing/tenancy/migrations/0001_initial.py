import billing.tenancy.models
import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.db.models.deletion
from decimal import Decimal
from django.conf import settings
from django.contrib.postgres.operations import BtreeGistExtension
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        BtreeGistExtension(),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("actor", models.CharField(max_length=200)),
                ("action", models.CharField(max_length=64)),
                ("subject", models.CharField(max_length=300)),
                ("detail", models.JSONField(default=dict)),
                ("transaction", models.BigIntegerField(db_default=0, editable=False)),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("ordinal", models.BigIntegerField(primary_key=True, serialize=False)),
                ("payload", models.TextField()),
                ("previous", models.CharField(blank=True, max_length=64)),
                ("digest", models.CharField(max_length=64)),
                (
                    "entry",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="link", to="tenancy.auditentry"
                    ),
                ),
            ],
            options={
                "ordering": ["ordinal"],
            },
        ),
        migrations.CreateModel(
            name="BillingSetup",
            fields=[
                ("singleton", models.BooleanField(default=True, editable=False, primary_key=True, serialize=False)),
                ("currency", models.CharField(max_length=3)),
                ("zone", models.CharField(max_length=64)),
                ("issuer", models.CharField(max_length=64)),
                (
                    "legal_entity",
                    models.CharField(blank=True, default="", help_text="whose books the issuer keeps", max_length=200),
                ),
                ("address", models.CharField(blank=True, default="", max_length=500)),
                ("tax_id", models.CharField(blank=True, default="", max_length=64)),
                (
                    "contact",
                    models.CharField(blank=True, default="", help_text="who answers for the documents", max_length=200),
                ),
                (
                    "review",
                    models.CharField(
                        choices=[
                            ("none", "drafts of a clean close are approved"),
                            ("four-eyes", "drafts are approved by somebody else than who closed"),
                        ],
                        default="none",
                        max_length=16,
                    ),
                ),
                (
                    "reopening",
                    models.CharField(
                        choices=[
                            ("never", "a closed month stays closed"),
                            ("two-persons", "a month of which nothing was issued is reopened by two persons"),
                        ],
                        default="never",
                        max_length=16,
                    ),
                ),
                (
                    "holidays",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.DateField(),
                        default=list,
                        help_text="local days without work beside weekends",
                        size=None,
                    ),
                ),
                (
                    "working_days",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.DateField(), default=list, help_text="days of weekends that are worked", size=None
                    ),
                ),
                (
                    "dispute_hold_share",
                    models.DecimalField(
                        decimal_places=4,
                        default=Decimal("0.0500"),
                        help_text="of a document that a dispute must exceed",
                        max_digits=6,
                    ),
                ),
                (
                    "dispute_hold_amount",
                    models.DecimalField(
                        decimal_places=2,
                        default=Decimal("10000.00"),
                        help_text="that a dispute must exceed, too",
                        max_digits=20,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("singleton", True)), name="billing_setup_is_one_row")
                ],
            },
        ),
        migrations.CreateModel(
            name="Team",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("code", models.CharField(max_length=64, unique=True)),
                ("name", models.CharField(max_length=200)),
                ("cost_center", models.CharField(blank=True, max_length=64)),
                ("legal_entity", models.CharField(blank=True, default="", max_length=200)),
                (
                    "recipient",
                    models.CharField(blank=True, default="", help_text="to whose attention documents are", max_length=200),
                ),
                ("is_group", models.BooleanField(default=False)),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="tenancy.team",
                    ),
                ),
            ],
            options={
                "ordering": ["code"],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("prefix", models.CharField(max_length=16)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("scopes", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), size=None)),
                (
                    "source",
                    models.CharField(blank=True, help_text="may report only for this source or cluster", max_length=512),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        help_text="may read only this team",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="tenancy.team",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        help_text="who stands behind it",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="NamespaceOwnership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(max_length=512)),
                ("platform", models.BooleanField(default=False)),
                ("valid_from", models.DateTimeField(blank=True, null=True)),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("team", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenancy.team")),
            ],
            options={
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            ("cluster", "="),
                            ("namespace", "="),
                            (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                        ],
                        name="one_owner_of_a_namespace_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_from", None),
                            ("valid_until", None),
                            ("valid_from__lt", models.F("valid_until")),
                            _connector="OR",
                        ),
                        name="namespace_ownership_ends_after_it_starts",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "viewer"),
                            ("lead", "team lead"),
                            ("finance", "finance"),
                            ("approver", "approver"),
                            ("admin", "platform admin"),
                            ("auditor", "auditor"),
                        ],
                        default="viewer",
                        max_length=16,
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[("local", "granted here"), ("provider", "from a group of the identity provider")],
                        default="local",
                        editable=False,
                        max_length=16,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="tenancy.team",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "team", "role", "origin"), name="a_role_is_held_once", nulls_distinct=False
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("team", None), ("role__in", ["viewer", "lead"]), _connector="OR"),
                        name="roles_of_the_house_are_held_for_all_teams",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConsumerOwnership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=512)),
                ("consumer", models.CharField(max_length=512)),
                ("valid_from", models.DateTimeField(blank=True, null=True)),
                ("valid_until", models.DateTimeField(blank=True, null=True)),
                ("team", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenancy.team")),
            ],
            options={
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            ("source", "="),
                            ("consumer", "="),
                            (billing.tenancy.models.ValidRange("valid_from", "valid_until"), "&&"),
                        ],
                        name="one_owner_of_a_consumer_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_from", None),
                            ("valid_until", None),
                            ("valid_from__lt", models.F("valid_until")),
                            _connector="OR",
                        ),
                        name="consumer_ownership_ends_after_it_starts",
                    ),
                ],
            },
        ),
        *sql_applied("billing.tenancy", "guards", "audit", "cache"),
    ]
