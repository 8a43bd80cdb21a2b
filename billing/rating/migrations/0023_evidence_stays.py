"""Charges, verdicts and changes of closed time are never emptied; what a change was asked with is written once."""

from django.db import migrations

from billing.tenancy.guards import changes_only, never_emptied

DECIDED = ("status", "last_sample", "acknowledged", "approvers", "decided_at", "decision", "epoch", "ordinal")


class Migration(migrations.Migration):
    dependencies = [("rating", "0020_efficiency_to_the_cent"), ("tenancy", "0015_columns_stay")]
    operations = [
        never_emptied("rating_charge", "a charge is corrected by another one"),
        never_emptied("rating_efficiencyverdict", "the evidence of a charge stays"),
        never_emptied("rating_retroactivechange", "a change of closed time stays"),
        changes_only("rating_retroactivechange", DECIDED, "what a change proposes is written once"),
    ]
