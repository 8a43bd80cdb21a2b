-- Waivers stay with the close that they answered for; accruals and readings stay.

CREATE OR REPLACE FUNCTION closing_waiver_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoices_billingperiod p
                WHERE CASE TG_OP WHEN 'INSERT' THEN p.id = NEW.period_id AND p.status = 'closed'
                      ELSE p.id = OLD.period_id AND p.close_seq IS NOT NULL END) THEN
        RAISE EXCEPTION '% of %: the waivers of a close stay', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER waiver_of_a_close_stays BEFORE INSERT OR UPDATE ON closing_exceptionwaiver
    FOR EACH ROW EXECUTE FUNCTION closing_waiver_guard();
SELECT suanpan_columns_stay('closing_exceptionwaiver', '{reason,waived_by,quantity,waived_at,expires_at}',
    'a waiver answers for one exception');
SELECT suanpan_rows_are_kept('closing_exceptionwaiver', 'a waiver stays');

-- A close is added for a period that is being closed, with the next number. The last one that stands is taken back while
-- its period is being closed and has no bills, or is opened again by an approval and nothing of it is issued.
CREATE OR REPLACE FUNCTION closing_close_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    period invoices_billingperiod;
BEGIN
    SELECT * INTO period FROM invoices_billingperiod p
     WHERE p.close_seq = NEW.close_seq AND (p.start, p."end") = (NEW.start, NEW."end");
    IF TG_OP = 'INSERT' THEN
        IF period.status IS DISTINCT FROM 'closing' OR NEW.withdrawn_at IS NOT NULL
           OR NEW.close_seq <> (SELECT coalesce(max(close_seq), 0) + 1 FROM usage_close) THEN
            RAISE EXCEPTION 'close % is the next one of no period that is being closed', NEW.close_seq
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF EXISTS (SELECT 1 FROM usage_close c WHERE c.close_seq > NEW.close_seq AND c.withdrawn_at IS NULL) THEN
        RAISE EXCEPTION 'close % stays: a later one stands', NEW.close_seq USING ERRCODE = 'restrict_violation';
    END IF;
    IF period.status = 'closing'
       AND NOT EXISTS (SELECT 1 FROM rating_charge c WHERE c.close_seq = NEW.close_seq)
       AND NOT EXISTS (SELECT 1 FROM invoices_invoice i WHERE i.period_id = period.id AND i.status <> 'void') THEN
        RETURN NEW;
    END IF;
    IF EXISTS (SELECT 1 FROM approvals_proposal p
                WHERE p.kind = 'reopening' AND p.subject = period.month AND p.state = 'approved'
                  AND (p.payload ->> 'close_seq')::integer = NEW.close_seq)
       AND NOT EXISTS (SELECT 1 FROM invoices_invoice i WHERE i.period_id = period.id AND i.status = 'issued') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'close % stays: nobody approved to open its month again, or its invoices are issued', NEW.close_seq
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER a_close_is_of_a_period BEFORE INSERT OR UPDATE OF withdrawn_at ON usage_close
    FOR EACH ROW EXECUTE FUNCTION closing_close_guard();

-- Of the requests to open a month again one waits, and a close is taken back once.
CREATE UNIQUE INDEX IF NOT EXISTS one_reopening_waits ON approvals_proposal (subject)
    WHERE kind = 'reopening' AND state IN ('draft', 'submitted');
CREATE UNIQUE INDEX IF NOT EXISTS a_close_is_taken_back_once ON approvals_proposal (subject, (payload ->> 'close_seq'))
    WHERE kind = 'reopening' AND state = 'approved';

SELECT suanpan_append_only('closing_accrual', 'an accrual never changes: make another revision');
SELECT suanpan_append_only('closing_meterreading', 'what a meter counted stays as it was told: tell another reading');
SELECT suanpan_audited('closing_meterreading');
