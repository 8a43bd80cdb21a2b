"""A month in the middle of its close is opened again like a closed one: never once it is issued, never its bills by one person."""

import importlib

from django.db import migrations, models

BEFORE = importlib.import_module("billing.invoicing.migrations.0013_period_reopenings")
APPROVED = """EXISTS (SELECT 1 FROM invoicing_periodreopening r
                  WHERE r.period_id = OLD.id AND r.closing = OLD.ordinal AND r.status = 'approved')"""
ISSUED = "EXISTS (SELECT 1 FROM invoicing_invoice i WHERE i.period_id = OLD.id AND i.status = 'issued')"
BILLED = "EXISTS (SELECT 1 FROM rating_charge c WHERE c.closing = OLD.ordinal)"
FORWARD = f"""
CREATE OR REPLACE FUNCTION invoicing_period_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'closed' AND (TG_OP = 'DELETE' OR NEW.status <> 'open' OR NOT {APPROVED} OR {ISSUED}) THEN
        RAISE EXCEPTION 'period % is closed', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.status = 'closing' AND (TG_OP = 'DELETE' OR NEW.status = 'open' AND {BILLED} AND (NOT {APPROVED} OR {ISSUED})) THEN
        RAISE EXCEPTION 'period % is being closed and has bills', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND (NEW.month, NEW.zone, NEW.start, NEW."end") <> (OLD.month, OLD.zone, OLD.start, OLD."end")
    THEN
        RAISE EXCEPTION 'the bounds of period % are stored once', OLD.month USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0019_operation_progress"), ("rating", "0007_pools_at_close")]
    operations = [
        migrations.AlterField(
            model_name="periodreopening",
            name="closed_at",
            field=models.DateTimeField(null=True, help_text="none where the close held teams and never ended"),
        ),
        migrations.RunSQL(FORWARD, BEFORE.GUARD.format(refused=BEFORE.UNLESS_REOPENED)),
    ]
