"""The audit log is a hash chain, cannot be emptied, and notes every change of a watched row."""

import django.db.models.deletion
from django.db import migrations, models

from billing.tenancy.audit_trigger import watched

FORWARD = """
ALTER TABLE tenancy_auditentry ALTER COLUMN transaction SET DEFAULT pg_current_xact_id()::text::bigint;

CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON tenancy_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION suanpan_refuse('the audit log only grows');
CREATE TRIGGER audit_chain_is_append_only BEFORE UPDATE OR DELETE ON tenancy_auditlink
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('the audit log only grows');
CREATE TRIGGER audit_chain_is_never_emptied BEFORE TRUNCATE ON tenancy_auditlink
    FOR EACH STATEMENT EXECUTE FUNCTION suanpan_refuse('the audit log only grows');

-- The link of one entry. Runs at commit, so that the lock is the last one a transaction takes and is held for an instant:
-- entries are chained in the order in which their transactions became true.
CREATE FUNCTION tenancy_audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last record;
    told text;
BEGIN
    PERFORM pg_advisory_xact_lock(1398032212);
    SELECT ordinal, digest INTO last FROM tenancy_auditlink ORDER BY ordinal DESC LIMIT 1;
    told := jsonb_build_object(
        'id', NEW.id, 'at', to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'actor', NEW.actor,
        'action', NEW.action, 'subject', NEW.subject, 'detail', NEW.detail, 'transaction', NEW.transaction)::text;
    INSERT INTO tenancy_auditlink (ordinal, entry_id, payload, previous, digest)
    VALUES (coalesce(last.ordinal, 0) + 1, NEW.id, told, coalesce(last.digest, ''),
            encode(sha256(convert_to(coalesce(last.digest, '') || told, 'UTF8')), 'hex'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit_is_chained AFTER INSERT ON tenancy_auditentry DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_chain();

-- Before and after of a row. Arguments: key column, silent columns, secret columns.
CREATE FUNCTION tenancy_audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    silent text[] := string_to_array(TG_ARGV[1], ',');
    hidden text;
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    after jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    pk text := coalesce(after, before) ->> TG_ARGV[0];
BEGIN
    IF TG_OP = 'UPDATE' AND before - silent = after - silent THEN
        RETURN NULL;
    END IF;
    FOREACH hidden IN ARRAY string_to_array(TG_ARGV[2], ',') LOOP
        IF TG_OP = 'UPDATE' AND before -> hidden <> after -> hidden THEN
            after := after || jsonb_build_object(hidden, '(changed)');
        ELSE
            after := after - hidden;
        END IF;
        before := before - hidden;
    END LOOP;
    IF TG_OP = 'UPDATE' THEN
        SELECT jsonb_object_agg(key, value) INTO after FROM jsonb_each(after) WHERE value IS DISTINCT FROM before -> key;
        SELECT jsonb_object_agg(key, value) INTO before FROM jsonb_each(before) WHERE after ? key;
    END IF;
    INSERT INTO tenancy_auditentry (at, actor, action, subject, detail)
    VALUES (clock_timestamp(), 'database:' || session_user, 'row_' || lower(TG_OP), TG_TABLE_NAME || ' ' || pk,
            jsonb_strip_nulls(jsonb_build_object('before', before, 'after', after)));
    RETURN NULL;
END $$;

INSERT INTO tenancy_auditlink (ordinal, entry_id, payload, previous, digest)
WITH RECURSIVE told AS (
    SELECT row_number() OVER (ORDER BY id) AS ordinal, id, jsonb_build_object(
        'id', id, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'actor', actor,
        'action', action, 'subject', subject, 'detail', detail, 'transaction', transaction)::text AS payload
    FROM tenancy_auditentry
), chain AS (
    SELECT ordinal, id, payload, ''::text AS previous, encode(sha256(convert_to(payload, 'UTF8')), 'hex') AS digest
    FROM told WHERE ordinal = 1
    UNION ALL
    SELECT told.ordinal, told.id, told.payload, chain.digest,
           encode(sha256(convert_to(chain.digest || told.payload, 'UTF8')), 'hex')
    FROM chain JOIN told ON told.ordinal = chain.ordinal + 1
)
SELECT ordinal, id, payload, previous, digest FROM chain;
"""
REVERSE = """
DROP TRIGGER audit_is_chained ON tenancy_auditentry;
DROP TRIGGER audit_is_never_emptied ON tenancy_auditentry;
DROP FUNCTION tenancy_audit_row();
DROP FUNCTION tenancy_audit_chain();
"""
PEOPLE = {"silent": ("last_login",), "secret": ("password",)}


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0002_audit_is_append_only"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [
        migrations.AddField("auditentry", "transaction", models.BigIntegerField(db_default=0, editable=False)),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("ordinal", models.BigIntegerField(primary_key=True, serialize=False)),
                ("payload", models.TextField()),
                ("previous", models.CharField(blank=True, max_length=64)),
                ("digest", models.CharField(max_length=64)),
                (
                    "entry",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="link", to="tenancy.auditentry"
                    ),
                ),
            ],
            options={"ordering": ["ordinal"]},
        ),
        migrations.RunSQL(FORWARD, REVERSE),
        watched("tenancy_billingsetup", key="issuer"),
        watched("tenancy_team", key="code"),
        watched("tenancy_namespaceownership"),
        watched("tenancy_consumerownership"),
        watched("tenancy_membership"),
        watched("tenancy_apitoken", silent=("last_used_at",), secret=("digest",)),
        watched("auth_user", **PEOPLE),
        watched("auth_user_groups"),
        watched("auth_user_user_permissions"),
        watched("auth_group", key="name"),
        watched("auth_group_permissions"),
    ]
