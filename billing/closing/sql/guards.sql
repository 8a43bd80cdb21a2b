-- Waivers stay with the close that they answered for; a reopening is asked for, then decided once; accruals and readings stay.

CREATE OR REPLACE FUNCTION closing_waiver_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoices_billingperiod p WHERE p.id = OLD.period_id AND p.ordinal IS NOT NULL) THEN
        RAISE EXCEPTION '% of %: the waivers of a close stay', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER waiver_of_a_close_stays BEFORE UPDATE ON closing_exceptionwaiver
    FOR EACH ROW EXECUTE FUNCTION closing_waiver_guard();
SELECT suanpan_columns_stay('closing_exceptionwaiver', '{reason,waived_by,quantity,waived_at,expires_at}',
    'a waiver answers for one exception');
SELECT suanpan_rows_are_kept('closing_exceptionwaiver', 'a waiver stays');

CREATE OR REPLACE FUNCTION closing_reopening_is_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status <> 'requested' THEN
        RAISE EXCEPTION 'a reopening is asked for before it is decided' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER reopening_is_asked_first BEFORE INSERT ON closing_periodreopening
    FOR EACH ROW EXECUTE FUNCTION closing_reopening_is_asked();
CREATE OR REPLACE FUNCTION closing_reopening_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.status <> 'requested'
       OR (NEW.period_id, NEW.closing, NEW.reason, NEW.requested_by, NEW.requested_at, NEW.closed_by, NEW.closed_at)
          <> (OLD.period_id, OLD.closing, OLD.reason, OLD.requested_by, OLD.requested_at, OLD.closed_by, OLD.closed_at) THEN
        RAISE EXCEPTION 'a reopening is asked for and decided once, and stays' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER reopening_stays BEFORE UPDATE OR DELETE ON closing_periodreopening
    FOR EACH ROW EXECUTE FUNCTION closing_reopening_guard();
SELECT suanpan_never_emptied('closing_periodreopening', 'who opened a closed month is never forgotten');
SELECT suanpan_audited('closing_periodreopening');

SELECT suanpan_append_only('closing_accrual', 'an accrual never changes: make another revision');
SELECT suanpan_append_only('closing_meterreading', 'what a meter counted stays as it was told: tell another reading');
SELECT suanpan_audited('closing_meterreading');
