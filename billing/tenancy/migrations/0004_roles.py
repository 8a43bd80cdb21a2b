"""Roles beside the two of teams; who was staff keeps what staff could do."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


def staff_become_people_with_roles(apps, schema_editor):
    user, membership = apps.get_model("auth", "User"), apps.get_model("tenancy", "Membership")
    for person in user.objects.filter(is_staff=True, is_superuser=False):
        for role in ("finance", "approver", "admin"):
            membership.objects.create(user=person, role=role)


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0003_audit_chain")]
    operations = [
        migrations.RemoveConstraint("membership", "one_membership_per_person_and_team"),
        migrations.AlterField(
            "membership",
            "team",
            models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="memberships",
                to="tenancy.team",
            ),
        ),
        migrations.AlterField(
            "membership",
            "role",
            models.CharField(
                choices=[
                    ("viewer", "viewer"), ("lead", "team lead"), ("finance", "finance"), ("approver", "approver"),
                    ("admin", "platform admin"), ("auditor", "auditor"),
                ],
                default="viewer", max_length=16,
            ),
        ),
        migrations.AddField(
            "membership",
            "origin",
            models.CharField(
                choices=[("local", "granted here"), ("provider", "from a group of the identity provider")],
                default="local", editable=False, max_length=16,
            ),
        ),
        migrations.AddConstraint(
            "membership",
            models.UniqueConstraint(
                fields=["user", "team", "role", "origin"], name="a_role_is_held_once", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            "membership",
            models.CheckConstraint(
                condition=Q(team=None) | Q(role__in=["viewer", "lead"]), name="roles_of_the_house_are_held_for_all_teams"
            ),
        ),
        migrations.RunPython(staff_become_people_with_roles, migrations.RunPython.noop),
    ]  # fmt: skip
