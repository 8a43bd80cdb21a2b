"""An agent says since when its state has been kept, so that the platform knows one that begins anew."""

from django.db import migrations, models

from billing.tenancy.guards import changes_only


class Migration(migrations.Migration):
    dependencies = [("usage", "0049_allocation_seen")]
    operations = [
        migrations.AddField(
            "agentwatermark",
            "watched_since",
            models.DateTimeField(null=True, help_text="when the first list of the agent's state was complete"),
        ),
        changes_only("usage_agentwatermark", ("watermark", "watched_since", "reported_at"), "a watermark goes forward"),
    ]
