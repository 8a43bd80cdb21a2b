"""Charges are written once, by the close that bills them."""

from django.db import migrations

FORWARD = """
CREATE TRIGGER charge_is_immutable BEFORE UPDATE OR DELETE ON rating_charge
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('a charge is corrected by another one');
CREATE TRIGGER verdict_is_immutable BEFORE UPDATE OR DELETE ON rating_efficiencyverdict
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('the evidence of a charge stays');
"""
REVERSE = """
DROP TRIGGER verdict_is_immutable ON rating_efficiencyverdict;
DROP TRIGGER charge_is_immutable ON rating_charge;
"""


class Migration(migrations.Migration):
    dependencies = [("rating", "0001_initial"), ("tenancy", "0002_audit_is_append_only")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
