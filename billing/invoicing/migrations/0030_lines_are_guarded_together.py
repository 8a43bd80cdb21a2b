"""New lines are compared with their invoices once per statement: a close writes tens of thousands of them in one.

The index on the invoice alone goes, since the one on invoice and position answers the same.
"""

import django.db.models.deletion
from django.db import migrations, models

FORWARD = """
CREATE FUNCTION invoicing_new_lines_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM (SELECT DISTINCT invoice_id FROM new_line) AS n
               JOIN invoicing_invoice i ON i.id = n.invoice_id AND i.status = 'issued') THEN
        RAISE EXCEPTION 'the lines of an issued invoice never change' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER issued_line_is_immutable ON invoicing_invoiceline;
CREATE TRIGGER issued_line_is_immutable BEFORE UPDATE OR DELETE ON invoicing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION invoicing_line_guard();
CREATE TRIGGER issued_invoice_gets_no_line AFTER INSERT ON invoicing_invoiceline REFERENCING NEW TABLE AS new_line
    FOR EACH STATEMENT EXECUTE FUNCTION invoicing_new_lines_guard();
"""
REVERSE = """
DROP TRIGGER issued_invoice_gets_no_line ON invoicing_invoiceline;
DROP TRIGGER issued_line_is_immutable ON invoicing_invoiceline;
CREATE TRIGGER issued_line_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON invoicing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION invoicing_line_guard();
DROP FUNCTION invoicing_new_lines_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0021_dispute_holds")]
    operations = [
        migrations.RunSQL(FORWARD, REVERSE),
        migrations.AlterField(
            "invoiceline", "invoice",
            models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="invoicing.invoice"
            ),
        ),
    ]  # fmt: skip
