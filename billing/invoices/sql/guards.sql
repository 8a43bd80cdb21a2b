-- Issued documents never change; numbers only go up; credits never exceed the charge.

-- The text of a document is read whole and never searched: uncompressed it is written in less time.
ALTER TABLE invoices_invoice ALTER COLUMN document SET STORAGE EXTERNAL;

-- A period comes open and takes the next number of a close; it is closed while that close stands, and opens again once it
-- is taken back. A closed month opens again by an approved reopening, and only while nothing of it is issued.
CREATE OR REPLACE FUNCTION invoices_period_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reopened boolean := EXISTS (SELECT 1 FROM approvals_proposal p
                                WHERE p.kind = 'reopening' AND p.subject = OLD.month AND p.state = 'approved'
                                  AND (p.payload ->> 'close_seq')::integer = OLD.close_seq)
                        AND NOT EXISTS (SELECT 1 FROM invoices_invoice i WHERE i.period_id = OLD.id AND i.status = 'issued');
    stands boolean := EXISTS (SELECT 1 FROM usage_close c WHERE c.close_seq = OLD.close_seq AND c.withdrawn_at IS NULL
                              AND (c.start, c."end") = (OLD.start, OLD."end"));
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'open' THEN
            RAISE EXCEPTION 'period % comes open', NEW.month USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.status = 'closed' AND (TG_OP = 'DELETE' OR NEW.status <> 'open' OR NOT reopened) THEN
        RAISE EXCEPTION 'period % is closed', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.status = 'closing' AND (TG_OP = 'DELETE' OR NEW.status = 'open' AND NOT reopened
                                   AND EXISTS (SELECT 1 FROM rating_charge c WHERE c.close_seq = OLD.close_seq)) THEN
        RAISE EXCEPTION 'period % is being closed and has bills', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.month, NEW.zone, NEW.start, NEW."end") <> (OLD.month, OLD.zone, OLD.start, OLD."end") THEN
        RAISE EXCEPTION 'the bounds of period % are stored once', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status = 'open' AND NEW.status <> 'open'
       AND (NEW.status <> 'closing' OR NEW.close_seq <> (SELECT coalesce(max(close_seq), 0) + 1 FROM usage_close)) THEN
        RAISE EXCEPTION 'period % is closed by the next close', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status <> 'open' AND NEW.status <> 'open' AND NEW.close_seq <> OLD.close_seq
       OR TG_OP = 'UPDATE' AND NEW.status = 'closed' AND NOT stands THEN
        RAISE EXCEPTION 'period % is not closed by close %', OLD.month, NEW.close_seq USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status <> 'open' AND NEW.status = 'open' AND stands THEN
        RAISE EXCEPTION 'period % is closed by close %', OLD.month, OLD.close_seq USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE OR REPLACE TRIGGER closed_period_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoices_billingperiod
    FOR EACH ROW EXECUTE FUNCTION invoices_period_guard();

CREATE OR REPLACE FUNCTION invoices_mode_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    first text := least(COALESCE(NEW.from_month, OLD.from_month), COALESCE(OLD.from_month, NEW.from_month));
BEGIN
    IF EXISTS (SELECT 1 FROM invoices_billingperiod WHERE close_seq IS NOT NULL AND month >= first) THEN
        RAISE EXCEPTION 'the billing mode of a closed month never changes' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE OR REPLACE TRIGGER mode_of_a_closed_month_stays BEFORE INSERT OR UPDATE OR DELETE ON invoices_billingmode
    FOR EACH ROW EXECUTE FUNCTION invoices_mode_guard();

-- A draft is written once, with its lines and then its sums: another one takes its place where it is voided.
SELECT suanpan_columns_stay('invoices_invoice',
    '{status,approved_by,void_reason,number,fiscal_year,sequence,document,sha256,previous_sha256,issued_at}',
    'a draft is written once: void it and build it again');
CREATE OR REPLACE FUNCTION invoices_invoice_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status = 'issued' THEN
            RAISE EXCEPTION 'an invoice is issued of its draft' USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.status = 'issued' THEN
        RAISE EXCEPTION 'invoice % is issued and never changes', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'draft % stays: void it', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.status = 'void' THEN
        RAISE EXCEPTION 'draft % is void and stays so', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.status = 'issued' AND OLD.status <> 'approved' THEN
        RAISE EXCEPTION 'draft % is issued once it is approved', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER issued_invoice_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoices_invoice
    FOR EACH ROW EXECUTE FUNCTION invoices_invoice_guard();

-- New lines and sums are checked once per statement: a month has a hundred thousand.
CREATE OR REPLACE FUNCTION invoices_new_lines_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM (SELECT DISTINCT invoice_id FROM new_line) AS n
               JOIN invoices_invoice i ON i.id = n.invoice_id
               WHERE i.status = 'issued' OR EXISTS (SELECT 1 FROM invoices_invoicesums s WHERE s.invoice_id = n.invoice_id)) THEN
        RAISE EXCEPTION 'the lines of an invoice are written once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION invoices_new_sums_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM new_line n JOIN invoices_invoice i ON i.id = n.invoice_id
               WHERE i.status = 'issued' OR n.gpu + n.tokens + n.other <> i.total
                  OR i.total <> (SELECT coalesce(sum(l.amount), 0) FROM invoices_invoiceline l WHERE l.invoice_id = i.id)) THEN
        RAISE EXCEPTION 'the sums of an invoice are those of its lines' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS issued_line_is_immutable ON invoices_invoiceline;
DROP TRIGGER IF EXISTS issued_sums_are_immutable ON invoices_invoicesums;
DROP FUNCTION IF EXISTS invoices_line_guard();
CREATE OR REPLACE TRIGGER issued_invoice_gets_no_line AFTER INSERT ON invoices_invoiceline REFERENCING NEW TABLE AS new_line
    FOR EACH STATEMENT EXECUTE FUNCTION invoices_new_lines_guard();
CREATE OR REPLACE TRIGGER issued_invoice_gets_no_sums AFTER INSERT ON invoices_invoicesums REFERENCING NEW TABLE AS new_line
    FOR EACH STATEMENT EXECUTE FUNCTION invoices_new_sums_guard();
SELECT suanpan_append_only('invoices_invoiceline', 'the lines of an invoice never change');
SELECT suanpan_append_only('invoices_invoicesums', 'the lines of an invoice never change');

-- A series stands at its last document: a number that none has would be a gap that nobody explains.
CREATE OR REPLACE FUNCTION invoices_series_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (TG_OP = 'INSERT' OR (NEW.last_number, NEW.last_sha256) <> (OLD.last_number, OLD.last_sha256))
       AND (NEW.last_number, NEW.last_sha256) <> (0, '') AND NOT EXISTS (
           SELECT 1 FROM invoices_invoice i
            WHERE NEW.kind = 'invoice' AND (i.issuer, i.fiscal_year, i.sequence, i.sha256)
                                         = (NEW.issuer, NEW.fiscal_year, NEW.last_number, NEW.last_sha256)
           UNION ALL
           SELECT 1 FROM invoices_note n
            WHERE (n.kind, n.issuer, n.fiscal_year, n.sequence, n.sha256)
                = (NEW.kind, NEW.issuer, NEW.fiscal_year, NEW.last_number, NEW.last_sha256)) THEN
        RAISE EXCEPTION 'series % % % has no document %', NEW.kind, NEW.issuer, NEW.fiscal_year, NEW.last_number
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER series_stands_at_its_document BEFORE INSERT OR UPDATE OF last_number, last_sha256
    ON invoices_numberseries FOR EACH ROW EXECUTE FUNCTION invoices_series_guard();
SELECT suanpan_columns_stay('invoices_numberseries', '{last_number,last_sha256}', 'numbers only go up');
SELECT suanpan_refused_where('invoices_numberseries', 'numbers_go_up', '{last_number}', 'NEW.last_number < OLD.last_number',
    'numbers only go up');
SELECT suanpan_rows_are_kept('invoices_numberseries', 'numbers only go up');

CREATE OR REPLACE FUNCTION invoices_correction_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'draft' OR NEW.decided_at IS NOT NULL OR NEW.issued_at IS NOT NULL OR NEW.period_id IS NOT NULL THEN
            RAISE EXCEPTION 'a correction begins as a draft' USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' OR OLD.status IN ('issued', 'void') THEN
        RAISE EXCEPTION 'correction % is % and never changes', OLD.id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    IF (NEW.amount, NEW.currency, NEW.reason_code, NEW.reason, NEW.evidence, NEW.proposal_id)
       <> (OLD.amount, OLD.currency, OLD.reason_code, OLD.reason, OLD.evidence, OLD.proposal_id) THEN
        RAISE EXCEPTION 'what correction % asks for is written once', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.status IN ('approved', 'issued')
       AND NOT EXISTS (SELECT 1 FROM approvals_proposal p WHERE p.id = NEW.proposal_id AND p.state = 'approved') THEN
        RAISE EXCEPTION 'correction % is not approved by a second person', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER decided_correction_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoices_correction
    FOR EACH ROW EXECUTE FUNCTION invoices_correction_guard();

CREATE OR REPLACE FUNCTION invoices_note_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.number IS NOT NULL
           OR NOT EXISTS (SELECT 1 FROM invoices_correction WHERE id = NEW.correction_id AND status = 'draft') THEN
            RAISE EXCEPTION 'a note is drafted with its correction' USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'a note is voided, never deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.number IS NOT NULL THEN
        RAISE EXCEPTION 'note % is issued and never changes', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.number IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM invoices_correction WHERE id = NEW.correction_id AND status = 'approved') THEN
        RAISE EXCEPTION 'note % belongs to no approved correction', NEW.number USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER issued_note_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoices_note
    FOR EACH ROW EXECUTE FUNCTION invoices_note_guard();

CREATE OR REPLACE FUNCTION invoices_note_line_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoices_note WHERE id = NEW.note_id AND number IS NOT NULL) THEN
        RAISE EXCEPTION 'the lines of an issued note never change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER issued_note_has_its_lines BEFORE INSERT ON invoices_noteline
    FOR EACH ROW EXECUTE FUNCTION invoices_note_line_guard();
SELECT suanpan_append_only('invoices_noteline', 'a line of a note never changes: void its correction');

-- The lock on the credited line makes two notes at once wait for each other.
CREATE OR REPLACE FUNCTION invoices_credit_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    charged numeric;
    credited numeric;
BEGIN
    IF NEW.invoice_line_id IS NOT NULL THEN
        SELECT l.amount INTO charged FROM invoices_invoiceline l WHERE l.id = NEW.invoice_line_id FOR UPDATE;
        IF NOT EXISTS (SELECT 1 FROM invoices_invoiceline l JOIN invoices_invoice i ON i.id = l.invoice_id
                       WHERE l.id = NEW.invoice_line_id AND i.status = 'issued') THEN
            RAISE EXCEPTION 'only lines of issued invoices are credited' USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF NEW.note_line_id IS NOT NULL THEN
        SELECT l.amount INTO charged FROM invoices_noteline l WHERE l.id = NEW.note_line_id FOR UPDATE;
        IF NOT EXISTS (SELECT 1 FROM invoices_noteline l JOIN invoices_note n ON n.id = l.note_id
                       WHERE l.id = NEW.note_line_id AND l.style = 'rebill'
                             AND (n.number IS NOT NULL OR n.id = NEW.note_id)) THEN
            RAISE EXCEPTION 'only lines of issued rebills are credited' USING ERRCODE = 'restrict_violation';
        END IF;
    ELSE
        RETURN NEW;
    END IF;
    SELECT coalesce(sum(l.amount), 0) INTO credited
    FROM invoices_noteline l JOIN invoices_note n ON n.id = l.note_id
    JOIN invoices_correction c ON c.id = n.correction_id
    WHERE c.status <> 'void' AND (l.invoice_line_id = NEW.invoice_line_id OR l.note_line_id = NEW.note_line_id);
    IF credited * sign(charged) > 0 OR abs(credited) > abs(charged) THEN
        RAISE EXCEPTION 'a line that charged % cannot be credited by % in all', charged, credited
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER credits_never_exceed_the_charge AFTER INSERT ON invoices_noteline
    FOR EACH ROW EXECUTE FUNCTION invoices_credit_limit();

SELECT suanpan_append_only('invoices_documentevent', 'what happened to a document stays');

CREATE OR REPLACE FUNCTION invoices_journal_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.acknowledged_at IS NOT NULL
       OR (NEW.period_id, NEW.batch_hash, NEW.journals, NEW.debit, NEW.exported_at, NEW.exported_by, NEW.documents, NEW.in_part)
          <> (OLD.period_id, OLD.batch_hash, OLD.journals, OLD.debit, OLD.exported_at, OLD.exported_by, OLD.documents, OLD.in_part)
    THEN
        RAISE EXCEPTION 'journal % was exported and stays as it is', OLD.batch_hash USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER journal_export_stays BEFORE UPDATE OR DELETE ON invoices_journalexport
    FOR EACH ROW EXECUTE FUNCTION invoices_journal_guard();

SELECT suanpan_never_emptied(name::regclass, 'what was billed stays')
  FROM unnest(ARRAY['invoices_invoice', 'invoices_note',
                    'invoices_noteline', 'invoices_correction',
                    'invoices_documentevent',
                    'invoices_journalexport', 'invoices_billingmode',
                    'invoices_billingperiod']) AS name;

SELECT suanpan_audited('invoices_billingcontact');
SELECT suanpan_audited('invoices_journalexport');
