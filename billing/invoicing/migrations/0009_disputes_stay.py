"""Steps of disputes are append-only, and what a dispute claims is written once."""

from django.db import migrations

FORWARD = """
CREATE TRIGGER dispute_step_is_immutable BEFORE UPDATE OR DELETE ON invoicing_disputestep
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('a step of a dispute stays');
CREATE FUNCTION invoicing_dispute_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER dispute_is_kept BEFORE UPDATE OR DELETE ON invoicing_dispute
    FOR EACH ROW EXECUTE FUNCTION invoicing_dispute_guard();
"""
REVERSE = """
DROP TRIGGER dispute_is_kept ON invoicing_dispute;
DROP FUNCTION invoicing_dispute_guard();
DROP TRIGGER dispute_step_is_immutable ON invoicing_disputestep;
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0008_disputes")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
