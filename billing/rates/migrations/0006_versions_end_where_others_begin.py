"""The end of a published version or policy is where another begins, so that nobody can cut one short.

Checked at commit: a version ends before the next one is written. Writes beside the services show in the audit log.
"""

from django.db import migrations

from billing.tenancy.audit_trigger import watched

FORWARD = """
CREATE FUNCTION rates_end_is_a_beginning() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ending timestamptz;
    followed boolean;
BEGIN
    EXECUTE format('SELECT valid_until FROM %I WHERE id = $1', TG_TABLE_NAME) INTO ending USING NEW.id;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE valid_from = $1)', TG_TABLE_NAME) INTO followed USING ending;
    IF ending IS NOT NULL AND NOT followed THEN
        RAISE EXCEPTION '% ends only where another one begins', NEW.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER price_version_ends_where_another_begins AFTER INSERT OR UPDATE ON rates_priceversion
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rates_end_is_a_beginning();
CREATE CONSTRAINT TRIGGER efficiency_policy_ends_where_another_begins AFTER INSERT OR UPDATE ON rates_efficiencypolicy
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rates_end_is_a_beginning();
"""
REVERSE = """
DROP TRIGGER efficiency_policy_ends_where_another_begins ON rates_efficiencypolicy;
DROP TRIGGER price_version_ends_where_another_begins ON rates_priceversion;
DROP FUNCTION rates_end_is_a_beginning();
"""


class Migration(migrations.Migration):
    dependencies = [("rates", "0005_efficiency_policy_forms"), ("tenancy", "0003_audit_chain")]
    operations = [
        migrations.AlterModelOptions(
            name="efficiencypolicy",
            options={"ordering": ["valid_from"], "verbose_name_plural": "efficiency policies"},
        ),
        migrations.RunSQL(FORWARD, REVERSE),
        watched("rates_priceversion", key="name"),
        watched("rates_costsheet", key="name"),
        watched("rates_tokencostsheet", key="name"),
    ]
