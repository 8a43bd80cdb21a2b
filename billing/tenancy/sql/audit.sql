-- The audit log: append-only, chained by hashes, and one entry for every change of a row of the watched tables.

ALTER TABLE tenancy_auditentry ALTER COLUMN transaction SET DEFAULT pg_current_xact_id()::text::bigint;

SELECT suanpan_append_only('tenancy_auditentry', 'the audit log only grows');
SELECT suanpan_append_only('tenancy_auditlink', 'the audit log only grows');

-- At the commit each entry gets its link: the hash over the link before it and the entry's canonical text.
CREATE OR REPLACE FUNCTION tenancy_audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP TRIGGER IF EXISTS audit_is_chained ON tenancy_auditentry;
CREATE CONSTRAINT TRIGGER audit_is_chained AFTER INSERT ON tenancy_auditentry DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_chain();

-- Arguments: the key column; columns whose change alone is no entry; columns that are named but never shown.
CREATE OR REPLACE FUNCTION tenancy_audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- Services say what they mean; this says what happened, also where somebody wrote through the admin, a shell or plain SQL.
CREATE OR REPLACE FUNCTION suanpan_audited(watched regclass, key text DEFAULT 'id', silent text DEFAULT '', secret text DEFAULT '')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER row_is_audited AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW '
                   'EXECUTE FUNCTION tenancy_audit_row(%L, %L, %L)', watched, key, silent, secret);
END $$;

SELECT suanpan_audited('auth_user', silent => 'last_login', secret => 'password');
SELECT suanpan_audited('auth_group', 'name');
SELECT suanpan_audited('auth_group_permissions');
SELECT suanpan_audited('auth_user_groups');
SELECT suanpan_audited('auth_user_user_permissions');
SELECT suanpan_audited('tenancy_apitoken', silent => 'last_used_at', secret => 'digest');
SELECT suanpan_audited('tenancy_billingsetup', 'issuer');
SELECT suanpan_audited('tenancy_team', 'code');
SELECT suanpan_audited('tenancy_namespaceownership');
SELECT suanpan_audited('tenancy_consumerownership');
SELECT suanpan_audited('tenancy_membership');
