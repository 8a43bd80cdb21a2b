from django.db import migrations

FORWARD = """
    INSERT INTO usage_allocationend (allocation_id, epoch, ended_at, end_reason)
    SELECT id, (SELECT coalesce(max(ordinal), 0) FROM usage_closedwindow), ended_at, end_reason
    FROM usage_gpuallocation WHERE end_rule = 'share of a claim changed'
    ON CONFLICT (allocation_id, epoch) DO NOTHING
"""
"""Ends of the earlier pieces of holds of shared claims, as known from now on: no close that was made sees them."""


class Migration(migrations.Migration):
    dependencies = [("usage", "0015_withdrawn_closes")]
    operations = [migrations.RunSQL(FORWARD, migrations.RunSQL.noop)]
