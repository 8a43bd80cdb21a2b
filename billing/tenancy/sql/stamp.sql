-- When and by whom something happened the database says, not who adds the entry: now, and the actor for whom the session works
-- (`suanpan.actor`), or its role where it works for nobody.
CREATE OR REPLACE FUNCTION tenancy_audit_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    role text := 'database:' || session_user;
BEGIN
    NEW.at := clock_timestamp();
    NEW.transaction := pg_current_xact_id()::text::bigint;
    IF NEW.actor IS DISTINCT FROM role THEN
        NEW.actor := coalesce(nullif(current_setting('suanpan.actor', true), ''), role);
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER audit_is_stamped BEFORE INSERT ON tenancy_auditentry
    FOR EACH ROW EXECUTE FUNCTION tenancy_audit_stamp();
