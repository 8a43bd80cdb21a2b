"""The table of the cache that all web workers share: counters of sign-in attempts."""

from django.db import migrations

FORWARD = """
CREATE TABLE suanpan_cache (
    cache_key varchar(255) PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL
);
CREATE INDEX suanpan_cache_expires ON suanpan_cache (expires);
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0004_roles")]
    operations = [migrations.RunSQL(FORWARD, "DROP TABLE suanpan_cache")]
