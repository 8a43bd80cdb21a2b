"""A change of closed time is decided once: the database refuses to alter or drop it afterwards."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION rating_change_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.status <> 'proposed' THEN
        RAISE EXCEPTION 'change % is % and stays', OLD.name, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    IF (NEW.kind, NEW.name, NEW.valid_from, NEW.valid_until, NEW.fact, NEW.reason, NEW.requested_by)
       <> (OLD.kind, OLD.name, OLD.valid_from, OLD.valid_until, OLD.fact, OLD.reason, OLD.requested_by) THEN
        RAISE EXCEPTION 'what change % proposes is written once', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER decided_change_is_immutable BEFORE UPDATE OR DELETE ON rating_retroactivechange
    FOR EACH ROW EXECUTE FUNCTION rating_change_guard();
"""
REVERSE = """
DROP TRIGGER decided_change_is_immutable ON rating_retroactivechange;
DROP FUNCTION rating_change_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("rating", "0004_retroactive_changes")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
