"""Allocations of unknown share beside the ledger, and what somebody declares them to be."""

from django.db import migrations, models
from django.db.models import F, Q

SETTLED = [("", "not known"), ("known", "taken into the ledger"), ("no accelerator", "is no accelerator")]
ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    dependencies = [("usage", "0027_prepared_closes")]
    operations = [
        migrations.CreateModel(
            name="ShareDeclaration",
            fields=[
                ("id", ID),
                ("cluster", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("accelerator", models.CharField(blank=True, max_length=512)),
                ("why", models.CharField(blank=True, max_length=512)),
                ("device_fraction", models.DecimalField(decimal_places=12, max_digits=13, null=True)),
                (
                    "product",
                    models.CharField(blank=True, help_text="the accelerator that it is; empty: as reported", max_length=512),
                ),
                ("declared_by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("declared_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["cluster", "resource", "accelerator", "why"], name="one_share_declaration"
                    ),
                    models.CheckConstraint(
                        condition=Q(device_fraction=None) | Q(device_fraction__gt=0, device_fraction__lte=1),
                        name="declared_fraction_is_in_0_1",
                    ),
                ]
            },
        ),
        migrations.CreateModel(
            name="UnknownShare",
            fields=[
                ("id", ID),
                ("allocation_id", models.CharField(max_length=512, unique=True)),
                ("cluster", models.CharField(max_length=512)),
                ("namespace", models.CharField(max_length=512)),
                ("pod", models.CharField(max_length=512)),
                ("resource", models.CharField(max_length=512)),
                ("accelerator", models.CharField(max_length=512)),
                ("quantity", models.IntegerField(help_text="units of the resource")),
                ("why", models.CharField(help_text="what is not known", max_length=1024)),
                ("started_at", models.DateTimeField()),
                ("until", models.DateTimeField(help_text="the end, or how far it was seen")),
                ("ended", models.BooleanField()),
                (
                    "billable_from",
                    models.DateTimeField(help_text="the start, or the first instant after it that no close had billed"),
                ),
                ("record", models.TextField(help_text="the latest report")),
                ("reporter", models.CharField(max_length=512)),
                ("door", models.CharField(max_length=64)),
                ("settled", models.CharField(blank=True, choices=SETTLED, default="", max_length=16)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["cluster", "resource"], name="unknown_share_open", condition=Q(settled=""))
                ],
                "constraints": [
                    models.CheckConstraint(condition=Q(quantity__gt=0), name="unknown_share_quantity_is_positive"),
                    models.CheckConstraint(condition=Q(until__gte=F("started_at")), name="unknown_share_ends_after_start"),
                ],
            },
        ),
    ]
