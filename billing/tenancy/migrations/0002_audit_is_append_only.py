"""The audit log only grows, and a function that other rooms use to refuse changes."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION suanpan_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of %: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON tenancy_auditentry
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('the audit log only grows');
"""
REVERSE = """
DROP TRIGGER audit_is_append_only ON tenancy_auditentry;
DROP FUNCTION suanpan_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
