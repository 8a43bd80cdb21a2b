-- A close is taken back once or never; nothing else of it changes. When one is added or taken back `billing.closing` says.
CREATE OR REPLACE FUNCTION usage_close_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'withdrawn_at' = to_jsonb(OLD) - 'withdrawn_at'
       AND OLD.withdrawn_at IS NULL AND NEW.withdrawn_at IS NOT NULL THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'close % is taken back once or never, and stays as it was', OLD.close_seq USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER a_close_stays BEFORE UPDATE OR DELETE ON usage_close
    FOR EACH ROW EXECUTE FUNCTION usage_close_guard();
SELECT suanpan_never_emptied('usage_close', 'a close stays as it was');
SELECT suanpan_audited('usage_close', 'close_seq');
