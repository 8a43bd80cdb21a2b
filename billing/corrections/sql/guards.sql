-- What a dispute claims stays, each step of it too; a holdback of an earlier release is posted once.

CREATE OR REPLACE FUNCTION corrections_dispute_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.status IN ('upheld', 'withdrawn')
       OR (NEW.team_id, NEW.positions, NEW.amount, NEW.currency, NEW.reason_code, NEW.statement, NEW.opened_by,
           NEW.opened_at) <> (OLD.team_id, OLD.positions, OLD.amount, OLD.currency, OLD.reason_code, OLD.statement,
                              OLD.opened_by, OLD.opened_at)
       OR (OLD.status = 'rejected' AND (NEW.status <> 'escalated' OR OLD.escalated_at IS NOT NULL)) THEN
        RAISE EXCEPTION 'dispute % is % and what it claims stays', OLD.id, OLD.status
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER dispute_is_kept BEFORE UPDATE OR DELETE ON corrections_dispute
    FOR EACH ROW EXECUTE FUNCTION corrections_dispute_guard();
SELECT suanpan_append_only('corrections_disputestep', 'a step of a dispute stays');
SELECT suanpan_never_emptied('corrections_dispute', 'what was billed stays');

CREATE OR REPLACE FUNCTION corrections_holdback_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ending text[] := '{ended_at,ended_by,ended_reason}';
    posting text[] := '{posted_with_id,posted_at}';
BEGIN
    IF TG_OP = 'UPDATE'
       AND (OLD.ended_at IS NULL AND to_jsonb(NEW) - ending = to_jsonb(OLD) - ending
            OR OLD.posted_at IS NULL AND to_jsonb(NEW) - posting = to_jsonb(OLD) - posting)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'hold of dispute % is placed once, ended once and posted once', OLD.dispute_id USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER holdbacks_stay BEFORE UPDATE OR DELETE ON corrections_disputeholdback
    FOR EACH ROW EXECUTE FUNCTION corrections_holdback_guard();
SELECT suanpan_never_emptied('corrections_disputeholdback', 'what was kept off the ledger is never forgotten');
SELECT suanpan_audited('corrections_disputeholdback');
