-- Revisions are guarded statement by statement: row by row it costs a report of open allocations a fifth of its time.
-- A close that was taken back has billed nothing.
CREATE OR REPLACE FUNCTION usage_revision_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    present integer := (SELECT coalesce(max(close_seq), 0) FROM usage_close);
    billed integer := (SELECT coalesce(max(close_seq), 0) FROM usage_close WHERE withdrawn_at IS NULL);
    refused boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        refused := EXISTS (
            SELECT 1 FROM gone o JOIN usage_close w ON w.withdrawn_at IS NULL AND w.start < o.until AND w."end" > o.start
            WHERE o.epoch < billed);
    ELSE
        refused := EXISTS (
            SELECT 1 FROM gone o JOIN come n ON n.id = o.id WHERE o.epoch < present AND n.until <> o.until
            AND (n.until > o.until OR o.epoch < billed AND EXISTS (
                SELECT 1 FROM usage_close w WHERE w.withdrawn_at IS NULL AND w.start < o.until AND w."end" > n.until)));
    END IF;
    IF refused THEN
        RAISE EXCEPTION '% of %: what a close has billed of an allocation stays', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cut_revision_of_a_close_stays AFTER UPDATE ON usage_allocationrevision
    REFERENCING OLD TABLE AS gone NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION usage_revision_guard();
CREATE OR REPLACE TRIGGER revision_of_a_close_stays AFTER DELETE ON usage_allocationrevision
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION usage_revision_guard();
