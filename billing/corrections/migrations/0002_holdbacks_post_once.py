"""Disputes hold nothing off the ledger any more: what was held is posted once, with the journal of one month.

A part that its own month's journal has posted stays with it, and so does one of a document that no journal has had yet.
All others are posted by the next journal that is handed out.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from billing.runtime.sql_files import sql_applied


def assign_posted(apps: Any, _: Any) -> None:
    """Note the month whose journal has posted each part, or posts it with its document."""
    holdbacks, exports = apps.get_model("corrections", "DisputeHoldback"), apps.get_model("invoices", "JournalExport")
    for hold in holdbacks.objects.select_related("dispute__invoice__period", "dispute__note__correction__period"):
        dispute = hold.dispute
        document = dispute.invoice or dispute.note
        period = document.period if dispute.invoice else document.correction.period
        handed_over = [
            export.exported_at for export in exports.objects.filter(period=period)
            if document.number in (*export.documents, *export.in_part)
        ]  # fmt: skip
        if not handed_over:
            hold.posted_at = hold.placed_at
        elif hold.ended_at is not None and hold.ended_at <= max(handed_over):
            hold.posted_at = hold.ended_at
        else:
            continue
        hold.posted_with = period
        hold.save(update_fields=["posted_with", "posted_at"])


class Migration(migrations.Migration):
    dependencies = [("corrections", "0001_initial"), ("invoices", "0002_billing_mode")]

    operations = [
        migrations.AddField(
            model_name="disputeholdback",
            name="posted_with",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="posted_holds",
                to="invoices.billingperiod",
            ),
        ),
        migrations.AddField(
            model_name="disputeholdback", name="posted_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddConstraint(
            model_name="disputeholdback",
            constraint=models.CheckConstraint(
                condition=models.Q(("posted_at", None), ("posted_with", None))
                | models.Q(("posted_at__isnull", False), ("posted_with__isnull", False)),
                name="a_posted_hold_has_its_instant",
            ),
        ),
        *sql_applied("billing.corrections", "guards"),
        migrations.RunPython(assign_posted, migrations.RunPython.noop),
    ]  # fmt: skip
