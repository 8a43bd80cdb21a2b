"""Void drafts and events of documents stay as they are; the mode of a closed month never changes."""

from django.db import migrations

FORWARD = """
CREATE OR REPLACE FUNCTION invoicing_invoice_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'issued' THEN
        RAISE EXCEPTION 'invoice % is issued and never changes', OLD.number USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.status = 'void' AND TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'draft % is void and stays so', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;

CREATE TRIGGER event_is_immutable BEFORE UPDATE OR DELETE ON invoicing_documentevent
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('what happened to a document stays');

CREATE FUNCTION invoicing_mode_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    first text := least(COALESCE(NEW.from_month, OLD.from_month), COALESCE(OLD.from_month, NEW.from_month));
BEGIN
    IF EXISTS (SELECT 1 FROM invoicing_billingperiod WHERE ordinal IS NOT NULL AND month >= first) THEN
        RAISE EXCEPTION 'the billing mode of a closed month never changes' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER mode_of_a_closed_month_stays BEFORE INSERT OR UPDATE OR DELETE ON invoicing_billingmode
    FOR EACH ROW EXECUTE FUNCTION invoicing_mode_guard();
"""
REVERSE = """
DROP TRIGGER mode_of_a_closed_month_stays ON invoicing_billingmode;
DROP FUNCTION invoicing_mode_guard();
DROP TRIGGER event_is_immutable ON invoicing_documentevent;
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0006_states_and_shadows")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
