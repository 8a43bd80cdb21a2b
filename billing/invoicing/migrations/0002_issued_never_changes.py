"""Issued invoices, their lines, and closed periods are refused for UPDATE and DELETE by the database itself."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION invoicing_invoice_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'issued' THEN
        RAISE EXCEPTION 'invoice % is issued and never changes', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER issued_invoice_is_immutable BEFORE UPDATE OR DELETE ON invoicing_invoice
    FOR EACH ROW EXECUTE FUNCTION invoicing_invoice_guard();

CREATE FUNCTION invoicing_line_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_invoice bigint := CASE TG_OP WHEN 'INSERT' THEN NEW.invoice_id ELSE OLD.invoice_id END;
BEGIN
    IF EXISTS (SELECT 1 FROM invoicing_invoice WHERE id = of_invoice AND status = 'issued')
       OR (TG_OP = 'UPDATE' AND NEW.invoice_id <> OLD.invoice_id) THEN
        RAISE EXCEPTION 'the lines of an issued invoice never change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER issued_line_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoicing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION invoicing_line_guard();

CREATE FUNCTION invoicing_period_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'closed' THEN
        RAISE EXCEPTION 'period % is closed', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.month, NEW.zone, NEW.start, NEW."end") <> (OLD.month, OLD.zone, OLD.start, OLD."end")
    THEN
        RAISE EXCEPTION 'the bounds of period % are stored once', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER closed_period_is_immutable BEFORE UPDATE OR DELETE ON invoicing_billingperiod
    FOR EACH ROW EXECUTE FUNCTION invoicing_period_guard();
"""
REVERSE = """
DROP TRIGGER closed_period_is_immutable ON invoicing_billingperiod;
DROP TRIGGER issued_line_is_immutable ON invoicing_invoiceline;
DROP TRIGGER issued_invoice_is_immutable ON invoicing_invoice;
DROP FUNCTION invoicing_period_guard();
DROP FUNCTION invoicing_line_guard();
DROP FUNCTION invoicing_invoice_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0001_initial"), ("tenancy", "0002_audit_is_append_only")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
