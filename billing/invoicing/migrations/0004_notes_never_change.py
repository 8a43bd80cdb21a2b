"""Notes and decided corrections are immutable, and no line is credited by more than it charged: the database refuses."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION invoicing_note_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'a note is voided, never deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.number IS NOT NULL THEN
        RAISE EXCEPTION 'note % is issued and never changes', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.number IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM invoicing_correction WHERE id = NEW.correction_id AND status = 'approved') THEN
        RAISE EXCEPTION 'note % belongs to no approved correction', NEW.number USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER issued_note_is_immutable BEFORE UPDATE OR DELETE ON invoicing_note
    FOR EACH ROW EXECUTE FUNCTION invoicing_note_guard();

CREATE FUNCTION invoicing_note_line_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoicing_note WHERE id = NEW.note_id AND number IS NOT NULL) THEN
        RAISE EXCEPTION 'the lines of an issued note never change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER issued_note_has_its_lines BEFORE INSERT ON invoicing_noteline
    FOR EACH ROW EXECUTE FUNCTION invoicing_note_line_guard();
CREATE TRIGGER note_line_is_immutable BEFORE UPDATE OR DELETE ON invoicing_noteline
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('a line of a note never changes: void its correction');

CREATE FUNCTION invoicing_correction_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.status IN ('issued', 'void') THEN
        RAISE EXCEPTION 'correction % is % and never changes', OLD.id, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    IF (NEW.amount, NEW.currency, NEW.reason_code, NEW.reason, NEW.evidence, NEW.requested_by, NEW.requested_at)
       <> (OLD.amount, OLD.currency, OLD.reason_code, OLD.reason, OLD.evidence, OLD.requested_by, OLD.requested_at) THEN
        RAISE EXCEPTION 'what correction % asks for is written once', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER decided_correction_is_immutable BEFORE UPDATE OR DELETE ON invoicing_correction
    FOR EACH ROW EXECUTE FUNCTION invoicing_correction_guard();

CREATE TRIGGER approval_is_immutable BEFORE UPDATE OR DELETE ON invoicing_correctionapproval
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('an approval was given or not');

CREATE FUNCTION invoicing_credit_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    charged numeric;
    credited numeric;
BEGIN
    IF NEW.invoice_line_id IS NOT NULL THEN
        SELECT l.amount INTO charged FROM invoicing_invoiceline l WHERE l.id = NEW.invoice_line_id FOR UPDATE;
        IF NOT EXISTS (SELECT 1 FROM invoicing_invoiceline l JOIN invoicing_invoice i ON i.id = l.invoice_id
                       WHERE l.id = NEW.invoice_line_id AND i.status = 'issued') THEN
            RAISE EXCEPTION 'only lines of issued invoices are credited' USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF NEW.note_line_id IS NOT NULL THEN
        SELECT l.amount INTO charged FROM invoicing_noteline l WHERE l.id = NEW.note_line_id FOR UPDATE;
        IF NOT EXISTS (SELECT 1 FROM invoicing_noteline l JOIN invoicing_note n ON n.id = l.note_id
                       WHERE l.id = NEW.note_line_id AND l.style = 'rebill'
                             AND (n.number IS NOT NULL OR n.id = NEW.note_id)) THEN
            RAISE EXCEPTION 'only lines of issued rebills are credited' USING ERRCODE = 'restrict_violation';
        END IF;
    ELSE
        RETURN NEW;
    END IF;
    SELECT coalesce(sum(l.amount), 0) INTO credited
    FROM invoicing_noteline l JOIN invoicing_note n ON n.id = l.note_id
    JOIN invoicing_correction c ON c.id = n.correction_id
    WHERE c.status <> 'void' AND (l.invoice_line_id = NEW.invoice_line_id OR l.note_line_id = NEW.note_line_id);
    IF credited * sign(charged) > 0 OR abs(credited) > abs(charged) THEN
        RAISE EXCEPTION 'a line that charged % cannot be credited by % in all', charged, credited
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER credits_never_exceed_the_charge AFTER INSERT ON invoicing_noteline
    FOR EACH ROW EXECUTE FUNCTION invoicing_credit_limit();
"""
REVERSE = """
DROP TRIGGER approval_is_immutable ON invoicing_correctionapproval;
DROP TRIGGER credits_never_exceed_the_charge ON invoicing_noteline;
DROP TRIGGER decided_correction_is_immutable ON invoicing_correction;
DROP TRIGGER note_line_is_immutable ON invoicing_noteline;
DROP TRIGGER issued_note_has_its_lines ON invoicing_noteline;
DROP TRIGGER issued_note_is_immutable ON invoicing_note;
DROP FUNCTION invoicing_credit_limit();
DROP FUNCTION invoicing_correction_guard();
DROP FUNCTION invoicing_note_line_guard();
DROP FUNCTION invoicing_note_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0003_corrections")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
