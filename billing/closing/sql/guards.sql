-- Waivers stay with the close that they answered for; accruals and readings stay.

CREATE OR REPLACE FUNCTION closing_waiver_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoices_billingperiod p WHERE p.id = OLD.period_id AND p.close_seq IS NOT NULL) THEN
        RAISE EXCEPTION '% of %: the waivers of a close stay', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER waiver_of_a_close_stays BEFORE UPDATE ON closing_exceptionwaiver
    FOR EACH ROW EXECUTE FUNCTION closing_waiver_guard();
SELECT suanpan_columns_stay('closing_exceptionwaiver', '{reason,waived_by,quantity,waived_at,expires_at}',
    'a waiver answers for one exception');
SELECT suanpan_rows_are_kept('closing_exceptionwaiver', 'a waiver stays');

-- Of the requests to open a month again one waits, and a close is taken back once.
CREATE UNIQUE INDEX IF NOT EXISTS one_reopening_waits ON approvals_proposal (subject)
    WHERE kind = 'reopening' AND state IN ('draft', 'submitted');
CREATE UNIQUE INDEX IF NOT EXISTS a_close_is_taken_back_once ON approvals_proposal (subject, (payload ->> 'close_seq'))
    WHERE kind = 'reopening' AND state = 'approved';

SELECT suanpan_append_only('closing_accrual', 'an accrual never changes: make another revision');
SELECT suanpan_append_only('closing_meterreading', 'what a meter counted stays as it was told: tell another reading');
SELECT suanpan_audited('closing_meterreading');
