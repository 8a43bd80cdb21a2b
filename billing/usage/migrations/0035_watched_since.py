"""An agent says since when its state has been kept, so that the platform knows one that begins anew."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("usage", "0030_unknown_shares")]
    operations = [
        migrations.AddField(
            "agentwatermark",
            "watched_since",
            models.DateTimeField(null=True, help_text="when the first list of the agent's state was complete"),
        ),
    ]
