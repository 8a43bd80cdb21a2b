"""Waivers stay with the close that they answered for, numbers go up, and no table of documents is ever emptied."""

from django.db import migrations

from billing.tenancy.guards import changes_only, kept, never_emptied, refused_where

WAIVERS = """
CREATE FUNCTION invoicing_waiver_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM invoicing_billingperiod p WHERE p.id = OLD.period_id AND p.ordinal IS NOT NULL) THEN
        RAISE EXCEPTION '% of %: the waivers of a close stay', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER waiver_of_a_close_stays BEFORE UPDATE ON invoicing_exceptionwaiver
    FOR EACH ROW EXECUTE FUNCTION invoicing_waiver_guard();
"""
NO_WAIVERS = "DROP TRIGGER waiver_of_a_close_stays ON invoicing_exceptionwaiver; DROP FUNCTION invoicing_waiver_guard();"
DOCUMENTS = (
    "invoice", "invoiceline", "invoicesums", "note", "noteline", "correction", "correctionapproval", "documentevent",
    "dispute", "disputestep", "journalexport", "billingmode", "billingperiod",
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0086_unit_prices_of_adjustments"), ("tenancy", "0015_columns_stay")]
    operations = [
        *(never_emptied(f"invoicing_{table}", "what was billed stays") for table in DOCUMENTS),
        migrations.RunSQL(WAIVERS, NO_WAIVERS),
        changes_only(
            "invoicing_exceptionwaiver", ("reason", "waived_by", "quantity", "waived_at", "expires_at"),
            "a waiver answers for one exception",
        ),
        kept("invoicing_exceptionwaiver", "a waiver stays"),
        changes_only("invoicing_numberseries", ("last_number", "last_sha256"), "numbers only go up"),
        refused_where(
            "invoicing_numberseries", "numbers_go_up", ("last_number",), "NEW.last_number < OLD.last_number",
            "numbers only go up",
        ),
        kept("invoicing_numberseries", "numbers only go up"),
    ]  # fmt: skip
