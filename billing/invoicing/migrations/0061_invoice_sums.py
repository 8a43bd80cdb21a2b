"""The lines of every invoice in sums, for pages of a whole house; guarded as the lines are."""

import django.db.models.deletion
from django.db import migrations, models

FILL = """
INSERT INTO invoicing_invoicesums (invoice_id, gpu, tokens, other, facets)
SELECT i.id, COALESCE(sum(s.amount) FILTER (WHERE s.kind = 'gpu'), 0), COALESCE(sum(s.amount) FILTER (WHERE s.kind = 'tokens'), 0),
       COALESCE(sum(s.amount) FILTER (WHERE s.kind NOT IN ('gpu', 'tokens')), 0),
       COALESCE(json_agg(json_build_array(t.code, s.kind, s.correction, s.cluster, s.namespace, s.consumer, s.accelerator,
                                          s.sku, s.token_class, s.unit, s.quantity::text, s.amount::text)
                         ORDER BY s.position) FILTER (WHERE s.kind IS NOT NULL), '[]')::text
FROM invoicing_invoice i
JOIN tenancy_team t ON t.id = i.team_id
LEFT JOIN (SELECT invoice_id, kind, correction, cluster, namespace, consumer, accelerator, sku, token_class, unit,
                  sum(quantity) AS quantity, sum(amount) AS amount, min(position) AS position
           FROM invoicing_invoiceline GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AS s ON s.invoice_id = i.id
GROUP BY i.id;
SET CONSTRAINTS ALL IMMEDIATE;
"""
GUARD = """
CREATE TRIGGER issued_sums_are_immutable BEFORE UPDATE OR DELETE ON invoicing_invoicesums
    FOR EACH ROW EXECUTE FUNCTION invoicing_line_guard();
CREATE TRIGGER issued_invoice_gets_no_sums AFTER INSERT ON invoicing_invoicesums REFERENCING NEW TABLE AS new_line
    FOR EACH STATEMENT EXECUTE FUNCTION invoicing_new_lines_guard();
"""
UNGUARD = """
DROP TRIGGER issued_invoice_gets_no_sums ON invoicing_invoicesums;
DROP TRIGGER issued_sums_are_immutable ON invoicing_invoicesums;
"""


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0060_compared_days")]
    operations = [
        migrations.CreateModel(
            name="InvoiceSums",
            fields=[
                (
                    "invoice",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="sums", serialize=False,
                        to="invoicing.invoice",
                    ),
                ),
                ("gpu", models.DecimalField(decimal_places=2, max_digits=20)),
                ("tokens", models.DecimalField(decimal_places=2, max_digits=20)),
                (
                    "other",
                    models.DecimalField(decimal_places=2, help_text="of all other kinds of lines", max_digits=20),
                ),
                ("facets", models.TextField()),
            ],
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(GUARD, UNGUARD),
    ]  # fmt: skip
